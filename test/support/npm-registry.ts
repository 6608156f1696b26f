/** An npm registry with packages that this checkout has installed: tests that install need nothing from outside. */
import { execFileSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { packageRoot } from '../../src/host/config/options.ts';

export interface NpmRegistry extends AsyncDisposable {
  /** Environment for a process whose npm should use this registry, with its own cache. */
  readonly environment: Readonly<Record<string, string>>;
}

/** @param names of packages without dependencies */
export async function serveNpmRegistry(names: readonly string[]): Promise<NpmRegistry> {
  const dir = mkdtempSync(join(tmpdir(), 'turntable-registry-'));
  const server = createServer((request, response) => {
    const name = decodeURIComponent((request.url ?? '').slice(1)).replace(/\.tgz$/, '');
    const place = join(packageRoot, 'node_modules', name);
    if (!names.includes(name)) return void response.writeHead(404).end();
    if (request.url?.endsWith('.tgz') === true) {
      // With tar: npm takes a second for the same.
      const words = ['-cz', '-C', join(packageRoot, 'node_modules'), `--transform=s,^${name},package,`, name];
      return void response.end(execFileSync('tar', words, { maxBuffer: 2 ** 26 }));
    }
    const manifest = JSON.parse(readFileSync(join(place, 'package.json'), 'utf8')) as { readonly version: string };
    const { version } = manifest;
    const tarball = `http://${request.headers.host}/${encodeURIComponent(name)}.tgz`;
    const versions = { [version]: { ...manifest, scripts: {}, devDependencies: {}, dist: { tarball } } };
    response.setHeader('content-type', 'application/json');
    response.end(JSON.stringify({ name, 'dist-tags': { latest: version }, versions }));
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const registry = `http://127.0.0.1:${(server.address() as AddressInfo).port}/`;
  return {
    environment: { npm_config_registry: registry, npm_config_cache: join(dir, 'cache') },
    async [Symbol.asyncDispose]() {
      server.closeAllConnections();
      server.close();
      await once(server, 'close');
      rmSync(dir, { recursive: true, force: true });
    },
  };
}
