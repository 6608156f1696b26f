import { expect, test } from 'vitest';
import { topologyText } from './topology.ts';

const gpu = {
  name: 'Imagined GPU',
  numaNode: null,
  link: '32.0 GT/s x16',
  loadGBps: 50,
  storeGBps: 48.25,
};

test('the text shows each GPU, each pair of GPUs and the conclusions', () => {
  const text = topologyText({
    gpus: [
      { ...gpu, index: 0, pciBusId: '0000:17:00.0', switch: 0 },
      { ...gpu, index: 1, pciBusId: '0000:18:00.0', switch: 1 },
    ],
    pairs: [{ gpus: [0, 1], peerGBps: [180, 181.5], helpedGBps: [50.5, 51], loadTogetherGBps: 55 }],
    allAtOnceGBps: null,
    copyBytes: 64e6,
  });
  expect(text).toMatch(/^GPU +MODEL/);
  expect(text).toMatch(/1 +Imagined GPU +0000:18:00\.0 +1 +- +32\.0 GT\/s x16 +50\.0 +48\.3/);
  expect(text).toMatch(/0 and 1 +180\.0 \/ 181\.5 +55\.0 +55% +50\.5 \/ 51\.0/);
  expect(text).toContain('GPUs 0, 1: a way to host memory of 55.0 GB/s');
  expect(text).toContain('GPU 0 and GPU 1: NVLink of 180.0 GB/s, no help in loading');
  expect(text).toContain('GPU 0 and GPU 1 load at 55% of the sum of both alone: they share a switch.');
  expect(text).toContain('measured on this machine with copies of 64 MB');
});
