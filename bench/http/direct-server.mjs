// The yardstick for a model: one process that runs it as onnxruntime-node does by default, on one thread.
import { createServer } from 'node:http';
import { answerWith, openModel } from './model.mjs';

const server = createServer(answerWith(await openModel(process.argv[2])));
server.listen(0, '127.0.0.1', () => process.stdout.write(`http://127.0.0.1:${server.address().port}\n`));
