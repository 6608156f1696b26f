/** Measures the bandwidth of copies to and between GPUs: alone, two at once, all at once, and with a helping GPU. */
import { readPciPlace } from '../../hardware/index.ts';
import type { Cuda, CudaDevice, CudaStream, DeviceMemory, HostMemory } from '../driver/types.ts';
import type { MeasuredTopology } from './types.ts';

/** Memory and a stream for copies to and from a GPU. */
interface Probe extends Disposable {
  readonly device: CudaDevice;
  readonly memory: DeviceMemory;
  readonly host: HostMemory;
  readonly stream: CudaStream;
}

const repetitions = 3;
/** Timed together, one after the other. */
const copies = 8;

/** @param copyBytes of a copy @throws CudaError if there is no memory for the copies */
export async function measureTopology(cuda: Cuda, copyBytes = 64 * 2 ** 20): Promise<MeasuredTopology> {
  const probes: Probe[] = [];
  try {
    for (const device of cuda.devices) probes.push(openProbe(cuda, device, copyBytes));
    const places = probes.map(({ device }) => readPciPlace(device.pciBusId));
    const switches = [...new Set(places.map(({ upstream }) => upstream))];
    const gpus: MeasuredTopology['gpus'][number][] = [];
    for (const [index, probe] of probes.entries()) {
      const { device, memory, host } = probe;
      const { upstream, numaNode, link } = places[index]!;
      gpus.push({
        index: device.index,
        name: device.name,
        pciBusId: device.pciBusId,
        switch: switches.indexOf(upstream),
        numaNode,
        link: link === null ? null : `${link.gigatransfers} GT/s x${link.lanes}`,
        loadGBps: await best([loadOf(probe)], copyBytes),
        storeGBps: await best([{ probe, to: host.address, from: memory.address }], copyBytes),
      });
    }
    const pairs: MeasuredTopology['pairs'][number][] = [];
    for (const [index, first] of probes.entries()) {
      for (const second of probes.slice(index + 1)) pairs.push(await measurePair(first, second, copyBytes));
    }
    const all = probes.length > 2 ? await best(probes.map(loadOf), copyBytes) : null;
    return { gpus, pairs, allAtOnceGBps: all, copyBytes };
  } finally {
    for (const probe of probes) probe[Symbol.dispose]();
  }
}

async function measurePair(first: Probe, second: Probe, copyBytes: number): Promise<MeasuredTopology['pairs'][number]> {
  const peerAccess = first.device.canAccessPeer(second.device) && second.device.canAccessPeer(first.device);
  let peerGBps: readonly [number, number] | null = null;
  let helpedGBps: readonly [number, number] | null = null;
  if (peerAccess) {
    first.device.enablePeerAccess(second.device);
    second.device.enablePeerAccess(first.device);
    const there = { probe: first, to: second.memory.address, from: first.memory.address };
    const back = { probe: second, to: first.memory.address, from: second.memory.address };
    peerGBps = [await best([there], copyBytes), await best([back], copyBytes)];
    helpedGBps = [await helped(first, second, copyBytes), await helped(second, first, copyBytes)];
  }
  return {
    gpus: [first.device.index, second.device.index],
    peerGBps,
    helpedGBps,
    loadTogetherGBps: await best([first, second].map(loadOf), copyBytes),
  };
}

/**
 * GB/s from host memory to one GPU while another one loads every second copy and passes it on, as in parallel
 * transmission.
 */
async function helped(probe: Probe, helper: Probe, copyBytes: number): Promise<number> {
  const relay = probe.device.createStream();
  const fetched = Array.from({ length: copies }, () => helper.device.createEvent());
  try {
    const handedOn: Way = {
      probe: { ...probe, stream: relay },
      to: probe.memory.address,
      from: helper.memory.address,
      before: (copy) => {
        helper.stream.copy(helper.memory.address, helper.host.address, copyBytes);
        helper.stream.record(fetched[copy]!);
        relay.wait(fetched[copy]!);
      },
    };
    return await best([loadOf(probe), handedOn], copyBytes);
  } finally {
    for (const event of fetched) event.release();
    relay.release();
  }
}

const loadOf = (probe: Probe): Way => ({ probe, to: probe.memory.address, from: probe.host.address });

interface Way {
  readonly probe: Probe;
  readonly to: number;
  readonly from: number;
  /** Submitted before each copy. */
  readonly before?: (copy: number) => void;
}

/** GB/s of all copies together, the best of a few tries, since disturbances can only slow copies down. */
async function best(ways: readonly Way[], copyBytes: number): Promise<number> {
  let bestGBps = 0;
  for (let repetition = 0; repetition < repetitions; repetition++) {
    const timers = ways.map(({ probe }) => [
      probe.device.createEvent({ timing: true }),
      probe.device.createEvent({ timing: true }),
    ]);
    try {
      for (const [index, { probe }] of ways.entries()) probe.stream.record(timers[index]![0]!);
      // Copies are submitted in turns, so that all ways begin and end together.
      for (let copy = 0; copy < copies; copy++) {
        for (const { probe, to, from, before } of ways) {
          before?.(copy);
          probe.stream.copy(to, from, copyBytes);
        }
      }
      for (const [index, { probe }] of ways.entries()) probe.stream.record(timers[index]![1]!);
      await Promise.all(ways.map(({ probe }) => probe.stream.finished()));
      const longestMs = Math.max(...timers.map(([start, end]) => end!.msSince(start!)));
      if (longestMs > 0) bestGBps = Math.max(bestGBps, (ways.length * copies * copyBytes) / longestMs / 1e6);
    } finally {
      for (const timer of timers.flat()) timer.release();
    }
  }
  return bestGBps;
}

function openProbe(cuda: Cuda, device: CudaDevice, copyBytes: number): Probe {
  const memory = device.allocate(copyBytes);
  let host: HostMemory | undefined;
  try {
    host = cuda.allocateHost(copyBytes);
    const stream = device.createStream();
    // The first access to fresh pages is slow.
    stream.fill(memory.address, 0, copyBytes);
    stream.copy(host.address, memory.address, copyBytes);
    const pinned = host;
    return {
      device,
      memory,
      host,
      stream,
      [Symbol.dispose]: () => {
        stream.synchronize();
        stream.release();
        memory.release();
        pinned.release();
      },
    };
  } catch (error) {
    memory.release();
    host?.release();
    throw error;
  }
}
