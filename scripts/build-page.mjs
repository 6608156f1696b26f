// Bundles the dashboard's page: one document, one script, one style, and no request beyond the host.
import { copyFileSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import * as esbuild from 'esbuild';
import { straightImports } from './straight-imports.mjs';

const page = join('host', 'dashboard', 'page');

/**
 * @param {string} root the project's folder
 * @param {string} outdir
 */
export async function buildPage(root, outdir = join(root, 'dist')) {
  const straight = straightImports();
  await esbuild.build({
    entryPoints: [join(root, 'src', page, 'main.tsx'), join(root, 'src', page, 'page.css')],
    outdir: join(outdir, page),
    entryNames: 'page',
    bundle: true,
    minify: true,
    format: 'esm',
    target: 'es2023',
    jsx: 'automatic',
    jsxImportSource: 'preact',
    logLevel: 'warning',
    plugins: [
      {
        // Some files behind the doors of other folders need Node.
        name: 'past the doors',
        setup: (build) =>
          build.onLoad({ filter: /[\\/]src[\\/].*\.tsx?$/ }, ({ path }) => ({
            contents: straight(path, readFileSync(path, 'utf8')),
            loader: path.endsWith('x') ? 'tsx' : 'ts',
          })),
      },
    ],
  });
  copyFileSync(join(root, 'src', page, 'index.html'), join(outdir, page, 'index.html'));
}

if (process.argv[1] === fileURLToPath(import.meta.url)) await buildPage(dirname(dirname(process.argv[1])));
