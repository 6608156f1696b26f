import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { listFolder, readText } from '../tools/index.ts';

/** Finds a shared library as the dynamic linker would, and in the folders where CUDA is installed. */
export function findLibrary(
  name: string,
  options: { readonly root?: string; readonly libraryPath?: string | undefined } = {},
): string | undefined {
  const root = options.root ?? '/';
  const folders = [
    ...(options.libraryPath ?? '').split(':').filter((folder) => folder !== ''),
    ...linkerFolders(root),
    ...cudaFolders(root),
  ];
  for (const folder of folders) {
    // For a name without a version, the unversioned name of a development package and any versioned one will do.
    const found = name.includes('.so.')
      ? existsSync(join(root, folder, name)) && name
      : listFolder(root, folder).find((entry) => entry === name || entry.startsWith(`${name}.`));
    if (found) return join(folder, found);
  }
  return undefined;
}

function linkerFolders(root: string): string[] {
  const folders: string[] = [];
  for (const file of listFolder(root, 'etc/ld.so.conf.d')) {
    if (!file.endsWith('.conf')) continue;
    for (const line of readText(root, `etc/ld.so.conf.d/${file}`)?.split('\n') ?? []) {
      const folder = line.replace(/#.*/, '').trim();
      if (folder.startsWith('/')) folders.push(folder);
    }
  }
  return [
    ...folders,
    '/lib',
    '/usr/lib',
    '/lib64',
    '/usr/lib64',
    '/usr/lib/x86_64-linux-gnu',
    '/usr/lib/aarch64-linux-gnu',
    '/usr/lib/wsl/lib',
  ];
}

function cudaFolders(root: string): string[] {
  const folders: string[] = [];
  for (const entry of listFolder(root, 'usr/local')) {
    if (!/^cuda(-[\d.]+)?$/.test(entry)) continue;
    folders.push(`/usr/local/${entry}/lib64`);
    for (const target of listFolder(root, `usr/local/${entry}/targets`)) {
      folders.push(`/usr/local/${entry}/targets/${target}/lib`);
    }
  }
  return folders;
}
