import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { readPciPlace } from './pci.ts';

let root: string;

/** Adds a GPU below a switch's port to a copy of /sys. */
function addGpu(id: string, chain: readonly string[], files: Readonly<Record<string, string>>): void {
  const folder = join(root, 'sys/devices/pci0000:00', ...chain, id);
  mkdirSync(folder, { recursive: true });
  for (const [name, text] of Object.entries(files)) writeFileSync(join(folder, name), `${text}\n`);
  mkdirSync(join(root, 'sys/bus/pci/devices'), { recursive: true });
  symlinkSync(folder, join(root, 'sys/bus/pci/devices', id));
}

beforeAll(() => {
  root = mkdtempSync(join(tmpdir(), 'turntable-pci-'));
  const link = { numa_node: '1', max_link_speed: '32.0 GT/s PCIe', max_link_width: '16' };
  addGpu('0000:17:00.0', ['0000:00:03.0', '0000:15:00.0', '0000:16:00.0'], link);
  addGpu('0000:18:00.0', ['0000:00:03.0', '0000:15:00.0', '0000:16:01.0'], link);
  addGpu('0000:65:00.0', ['0000:00:05.0', '0000:63:00.0', '0000:64:00.0'], { numa_node: '-1' });
});
afterAll(() => rmSync(root, { recursive: true, force: true }));

test('GPUs on one switch have the same upstream port, a GPU on another switch has another', () => {
  const [first, second, third] = ['0000:17:00.0', '0000:18:00.0', '0000:65:00.0'].map((id) => readPciPlace(id, root));
  expect(first!.upstream).toBe(second!.upstream);
  expect(third!.upstream).not.toBe(first!.upstream);
  expect(first).toMatchObject({ numaNode: 1, link: { gigatransfers: '32.0', lanes: 16 } });
});

test('unknown facts are null, and bus addresses with 4 and 8 digits are the same', () => {
  expect(readPciPlace('0000:65:00.0', root)).toMatchObject({ numaNode: null, link: null });
  expect(readPciPlace('00000000:17:00.0', root)).toEqual(readPciPlace('0000:17:00.0', root));
  expect(readPciPlace('0000:99:00.0', root)).toMatchObject({ upstream: '0000:99:00.0', numaNode: null, link: null });
});
