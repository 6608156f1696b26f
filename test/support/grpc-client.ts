/** One inference over gRPC, for tests about something else. */
import { credentials, Metadata, type Client, type ServiceError } from '@grpc/grpc-js';
import { loadProtos, serviceOf } from '../../src/host/grpc/index.ts';

interface InferMessage {
  readonly model_version: string;
  readonly raw_output_contents: readonly Buffer[];
}

type Infer = (
  request: object,
  metadata: Metadata,
  callback: (error: ServiceError | null, response: InferMessage) => void,
) => void;

export interface GrpcTestClient extends Disposable {
  /** Sends four numbers to `x` of a model. */
  infer(
    model: string,
    x: readonly number[],
    headers?: Readonly<Record<string, string>>,
  ): Promise<{ readonly version: string; readonly output: readonly number[] }>;
}

export function createGrpcClient(address: string): GrpcTestClient {
  const client: Client = new (serviceOf(loadProtos(), 'inference', 'GRPCInferenceService'))(
    address,
    credentials.createInsecure(),
  );
  const { ModelInfer: infer } = client as unknown as { ModelInfer: Infer };
  return {
    infer: async (model, x, headers = {}) => {
      const metadata = new Metadata();
      for (const [name, value] of Object.entries(headers)) metadata.set(name, value);
      const inputs = [{ name: 'x', datatype: 'FP32', shape: [1, x.length] }];
      const request = { model_name: model, inputs, raw_input_contents: [Buffer.from(Float32Array.from(x).buffer)] };
      return await new Promise((resolve, reject) => {
        infer.call(
          client,
          request,
          metadata,
          (error, { model_version: version, raw_output_contents: raw } = nothing) => {
            if (error !== null) reject(error);
            else resolve({ version, output: [...new Float32Array(Uint8Array.from(raw[0]!).buffer)] });
          },
        );
      });
    },
    [Symbol.dispose]: () => client.close(),
  };
}

const nothing: InferMessage = { model_version: '', raw_output_contents: [] };
