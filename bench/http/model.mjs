// What the rivals' servers do with a body: raw floats, or the JSON of the Open Inference Protocol, in and out.
import { InferenceSession, Tensor } from 'onnxruntime-node';

const jsonType = 'application/json';

/** Runs as onnxruntime-node does by default, on one thread: floats in, floats out. */
export async function openModel(path) {
  const session = await InferenceSession.create(path, { intraOpNumThreads: 1, interOpNumThreads: 1 });
  const [{ name, shape }] = session.inputMetadata;
  return async (values) => {
    const known = shape.reduce((product, size) => (typeof size === 'number' && size > 0 ? product * size : product), 1);
    // One dimension may be open.
    const sizes = shape.map((size) => (typeof size === 'number' && size > 0 ? size : values.length / known));
    const outputs = await session.run({ [name]: new Tensor('float32', values, sizes) });
    return outputs[session.outputNames[0]].data;
  };
}

export const bytesOf = (values) => Buffer.from(values.buffer, values.byteOffset, values.byteLength);

/** Answers requests with what `run` makes of their floats. */
export function answerWith(run) {
  return (incoming, outgoing) => {
    const chunks = [];
    incoming.on('data', (chunk) => chunks.push(chunk));
    incoming.on('end', () => void answer(Buffer.concat(chunks), incoming, outgoing, run));
  };
}

async function answer(body, { headers }, outgoing, run) {
  const isJson = headers['content-type'] === jsonType;
  // A request in the protocol's binary form begins with its header.
  const from = Number(headers['inference-header-content-length'] ?? 0);
  const values = isJson
    ? Float32Array.from(JSON.parse(body.toString()).inputs[0].data)
    : new Float32Array(body.buffer.slice(body.byteOffset + from, body.byteOffset + body.byteLength));
  const result = await run(values);
  const reply = isJson
    ? Buffer.from(JSON.stringify({ outputs: [{ name: 'y', data: Array.from(result) }] }))
    : bytesOf(result);
  outgoing.writeHead(200, { 'Content-Length': reply.byteLength });
  outgoing.end(reply);
}
