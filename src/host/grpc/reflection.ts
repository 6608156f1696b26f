/** Reflection on both protocol versions, made at the first request: few clients ask, and making it takes 50 ms. */
import { createRequire } from 'node:module';
import type { handleBidiStreamingCall, MethodDefinition, Server } from '@grpc/grpc-js';
import type { PackageDefinition } from '@grpc/proto-loader';
import type * as ReflectionModule from '@grpc/reflection';

interface Method {
  readonly definition: MethodDefinition<object, object>;
  readonly handle: handleBidiStreamingCall<object, object>;
}

const method = 'ServerReflectionInfo';
const paths = ['v1', 'v1alpha'].map((version) => `/grpc.reflection.${version}.ServerReflection/${method}`);

export function addReflection(server: Server, protos: PackageDefinition): void {
  let made: ReadonlyMap<string, Method> | undefined;
  for (const path of paths) {
    const reflection = (): Method => (made ??= makeReflection(protos)).get(path)!;
    const definition: Method['definition'] = {
      path,
      requestStream: true,
      responseStream: true,
      requestSerialize: (value) => reflection().definition.requestSerialize(value),
      requestDeserialize: (bytes) => reflection().definition.requestDeserialize(bytes),
      responseSerialize: (value) => reflection().definition.responseSerialize(value),
      responseDeserialize: (bytes) => reflection().definition.responseDeserialize(bytes),
    };
    const handle: Method['handle'] = (call) => reflection().handle(call);
    server.addService({ [method]: definition }, { [method]: handle });
  }
}

/** What the library would add to a server, by path. */
function makeReflection(protos: PackageDefinition): ReadonlyMap<string, Method> {
  const { ReflectionService } = createRequire(import.meta.url)('@grpc/reflection') as typeof ReflectionModule;
  const methods = new Map<string, Method>();
  const collector: Pick<Server, 'addService'> = {
    addService: (service, implementation) => {
      const definition = service[method]!;
      methods.set(definition.path, { definition, handle: implementation[method] as Method['handle'] });
    },
  };
  new ReflectionService(protos).addToServer(collector);
  return methods;
}
