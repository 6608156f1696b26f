// Bundles the dashboard's page: one document, one script, one style, and no request beyond the host.
import { copyFileSync, utimesSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { buildSync } from 'esbuild';

const page = join('host', 'dashboard', 'page');

/** @param {string} root the project's folder */
export function buildPage(root) {
  buildSync({
    entryPoints: [join(root, 'src', page, 'main.tsx'), join(root, 'src', page, 'page.css')],
    outdir: join(root, 'dist', page),
    entryNames: 'page',
    bundle: true,
    minify: true,
    format: 'esm',
    target: 'es2023',
    jsx: 'automatic',
    jsxImportSource: 'preact',
    logLevel: 'warning',
  });
  copyFileSync(join(root, 'src', page, 'index.html'), join(root, 'dist', page, 'index.html'));
  // A script that has not changed is not written again; by its time test/global-setup.ts sees that it is up to date.
  const now = new Date();
  utimesSync(join(root, 'dist', page, 'page.js'), now, now);
}

if (process.argv[1] === fileURLToPath(import.meta.url)) buildPage(dirname(dirname(process.argv[1])));
