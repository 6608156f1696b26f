// Writes the pages and pictures in docs/ that come from code, schemas or results. `--check` writes nothing and fails on an outdated page.
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { format, resolveConfig } from 'prettier';
import { renderAlerts } from './alerts.ts';
import { renderDeployPage } from './deploy-page.ts';
import { renderConfigurationPage } from './configuration-page.ts';
import { renderErrorsPage } from './errors-page.ts';
import { paperPictures, renderPapersPage } from './papers-page.ts';

const root = dirname(dirname(fileURLToPath(import.meta.url)));

/** Each generated page, by its path, and the function that writes it. */
export const pages: Readonly<Record<string, () => string>> = {
  'docs/configuration.md': renderConfigurationPage,
  'docs/deploy.md': renderDeployPage,
  'docs/errors.md': renderErrorsPage,
  'docs/papers.md': renderPapersPage,
  'deploy/kubernetes/base/alerts.yaml': renderAlerts,
  ...paperPictures,
};

/** A page as it should be in the repository. */
export async function renderPage(path: string, render: () => string): Promise<string> {
  const file = join(root, path);
  if (path.endsWith('.svg')) return render();
  return await format(render(), { ...(await resolveConfig(file)), filepath: file });
}

function currentPage(path: string): string | undefined {
  try {
    return readFileSync(join(root, path), 'utf8');
  } catch {
    return undefined;
  }
}

/** Writes the pages that are not as they should be. @returns their paths; @param write whether to, or only to look */
export async function updatePages({ write }: { readonly write: boolean }): Promise<readonly string[]> {
  const stale: string[] = [];
  for (const [path, render] of Object.entries(pages)) {
    const text = await renderPage(path, render);
    if (currentPage(path) === text) continue;
    stale.push(path);
    if (!write) continue;
    mkdirSync(dirname(join(root, path)), { recursive: true });
    writeFileSync(join(root, path), text);
  }
  return stale;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const check = process.argv.includes('--check');
  for (const path of await updatePages({ write: !check })) {
    if (check) {
      console.error(`${path} is stale: run \`npm run docs\``);
      process.exitCode = 1;
    } else {
      console.log(`wrote ${path}`);
    }
  }
}
