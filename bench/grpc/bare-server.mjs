// The yardstick: the most that grpc-js can do when it decodes a ModelInfer request and returns its tensors.
import { join } from 'node:path';
import { loadPackageDefinition, Server, ServerCredentials } from '@grpc/grpc-js';
import { loadSync } from '@grpc/proto-loader';

const proto = join(import.meta.dirname, '../../src/host/grpc/inference.proto');
const { inference } = loadPackageDefinition(loadSync(proto, { keepCase: true, longs: String }));

const server = new Server();
server.addService(inference.GRPCInferenceService.service, {
  ModelInfer: ({ request }, callback) => {
    const { model_name, inputs, raw_input_contents } = request;
    const outputs = inputs.map(({ datatype, shape }) => ({ name: 'y', datatype, shape }));
    callback(null, { model_name, outputs, raw_output_contents: raw_input_contents });
  },
});
server.bindAsync('127.0.0.1:0', ServerCredentials.createInsecure(), (error, port) => {
  if (error) throw error;
  process.stdout.write(`http://127.0.0.1:${port}\n`);
});
