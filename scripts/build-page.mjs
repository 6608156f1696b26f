// Bundles the dashboard's page: one document, one script, one style, and no request beyond the host.
import { copyFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { buildSync } from 'esbuild';

const page = join('host', 'dashboard', 'page');

/**
 * @param {string} root the project's folder
 * @param {string} outdir
 */
export function buildPage(root, outdir = join(root, 'dist')) {
  buildSync({
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
  });
  copyFileSync(join(root, 'src', page, 'index.html'), join(outdir, page, 'index.html'));
}

if (process.argv[1] === fileURLToPath(import.meta.url)) buildPage(dirname(dirname(process.argv[1])));
