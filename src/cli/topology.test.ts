import { expect, test } from 'vitest';
import { topologyText } from './topology.ts';

const gpu = {
  name: 'Imagined GPU',
  numaNode: null,
  link: '32.0 GT/s x16',
  loadGBps: 50,
  storeGBps: 48.25,
};

test('the table shows each GPU, each pair, and what two links carry of twice one', () => {
  const text = topologyText({
    gpus: [
      { ...gpu, index: 0, pciBusId: '0000:17:00.0', switch: 0 },
      { ...gpu, index: 1, pciBusId: '0000:18:00.0', switch: 0 },
    ],
    pairs: [{ gpus: [0, 1], peerAccess: true, peerGBps: [180, 181.5], loadTogetherGBps: 55 }],
    copyBytes: 64e6,
  });
  expect(text).toMatch(/^GPU +MODEL/);
  expect(text).toMatch(/1 +Imagined GPU +0000:18:00\.0 +0 +- +32\.0 GT\/s x16 +50\.0 +48\.3/);
  expect(text).toMatch(/0 and 1 +same +yes +180\.0 +181\.5 +55\.0 +55%/);
  expect(text).toContain('measured on this machine with copies of 64 MB');
});
