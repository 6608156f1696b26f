import { pathToFileURL } from 'node:url';
import { build } from 'esbuild';

/**
 * Imports a module of src/ while dist/ is being built. It finds files by the URL of its source.
 * @param {string} path absolute
 */
export async function importSource(path) {
  const { outputFiles } = await build({
    entryPoints: [path],
    bundle: true,
    write: false,
    format: 'esm',
    platform: 'node',
    packages: 'external',
    define: { 'import.meta.url': JSON.stringify(pathToFileURL(path).href) },
  });
  return await import(`data:text/javascript;base64,${Buffer.from(outputFiles[0].contents).toString('base64')}`);
}
