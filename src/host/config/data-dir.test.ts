import { expect, test } from 'vitest';
import { defaultDataDir } from './data-dir.ts';

test('a checkout keeps its data in its root', () => {
  expect(defaultDataDir('/projects/turntable', { XDG_DATA_HOME: '/xdg' }, '/home/ann')).toBe(
    '/projects/turntable/turntable-data',
  );
});

test('an installed package keeps its data in the XDG data folder, which an upgrade does not touch', () => {
  const installed = '/usr/lib/node_modules/turntable';
  expect(defaultDataDir(installed, {}, '/home/ann')).toBe('/home/ann/.local/share/turntable');
  expect(defaultDataDir(installed, { XDG_DATA_HOME: '/xdg' }, '/home/ann')).toBe('/xdg/turntable');
  expect(defaultDataDir(installed, { XDG_DATA_HOME: 'relative' }, '/home/ann')).toBe(
    '/home/ann/.local/share/turntable',
  );
});
