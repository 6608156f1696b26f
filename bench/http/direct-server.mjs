// The yardstick for a model: one process that runs it as onnxruntime-node does by default, on one thread.
import { createServer } from 'node:http';
import { InferenceSession, Tensor } from 'onnxruntime-node';

const session = await InferenceSession.create(process.argv[2], { intraOpNumThreads: 1, interOpNumThreads: 1 });
const [{ name, shape }] = session.inputMetadata;
const server = createServer((incoming, outgoing) => {
  const chunks = [];
  incoming.on('data', (chunk) => chunks.push(chunk));
  incoming.on('end', () => void answer(Buffer.concat(chunks), outgoing));
});
server.listen(0, '127.0.0.1', () => process.stdout.write(`http://127.0.0.1:${server.address().port}\n`));

async function answer(body, outgoing) {
  const values = new Float32Array(body.buffer.slice(body.byteOffset, body.byteOffset + body.byteLength));
  const outputs = await session.run({ [name]: new Tensor('float32', values, shape) });
  const { data } = outputs[session.outputNames[0]];
  outgoing.end(Buffer.from(data.buffer, data.byteOffset, data.byteLength));
}
