/** The services for grpc-js, read at start from the .proto file beside this file. */
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { loadPackageDefinition, type GrpcObject, type ServiceClientConstructor } from '@grpc/grpc-js';
import { loadSync, type PackageDefinition } from '@grpc/proto-loader';

const folder = dirname(fileURLToPath(import.meta.url));

/** The service of inference; reflection serves the definition unchanged. */
export function loadProtos(): PackageDefinition {
  return loadSync(join(folder, 'inference.proto'), {
    keepCase: true,
    // As strings: numbers would round beyond 2^53.
    longs: String,
    enums: String,
    arrays: true,
    oneofs: true,
  });
}

/** A service by package and name, for servers and clients. */
export function serviceOf(protos: PackageDefinition, pkg: string, name: string): ServiceClientConstructor {
  const found = (loadPackageDefinition(protos)[pkg] as GrpcObject | undefined)?.[name];
  if (typeof found !== 'function') throw new Error(`the protos have no service ${pkg}.${name}`);
  return found;
}
