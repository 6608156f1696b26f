/** `turntable doctor --measure`: bandwidths of copies to and between the GPUs, and how the GPUs are joined by them. */
import { CudaError, measureTopology, openCuda, type MeasuredTopology } from '../../gpu/index.ts';
import { concludeTopology, gpuProcessesHere, type StatedTopology } from '../../hardware/index.ts';
import { CliError, tellingOf } from '../error.ts';
import { formatBytes } from '../../tools/index.ts';
import { renderTable } from '../table.ts';

/**
 * Measures, and prints what follows.
 *
 * @param stated the setting `gpu.topology`, which counts instead of the measurement
 */
export async function reportTopology(stated: StatedTopology | undefined, json: boolean): Promise<void> {
  const [holder] = gpuProcessesHere();
  if (holder !== undefined) {
    throw new CliError(
      `process ${holder} of a running host holds the GPUs, and copies beside its calls would slow both: stop that host first`,
    );
  }
  const topology = await tellingOf('there is nothing to measure', [CudaError], async () => {
    using cuda = openCuda({ need: 'driver' });
    return await measureTopology(cuda);
  });
  const concluded = concludeTopology(topology, stated);
  console.log(json ? JSON.stringify({ ...topology, concluded }, null, 2) : topologyText(topology, stated));
}

const gbps = (value: number): string => value.toFixed(1);

/**
 * The measured bandwidths, and the topology that they show. @throws MachineError for a stated topology that cannot be
 */
export function topologyText(topology: MeasuredTopology, stated?: StatedTopology): string {
  const { gpus, pairs, copyBytes } = topology;
  const gpuRows = gpus.map(({ index, name, pciBusId, switch: shared, numaNode, link, loadGBps, storeGBps }) => [
    String(index),
    name,
    pciBusId,
    String(shared),
    numaNode === null ? '-' : String(numaNode),
    link ?? 'unknown',
    gbps(loadGBps),
    gbps(storeGBps),
  ]);
  const parts = [
    renderTable(['GPU', 'MODEL', 'BUS', 'SWITCH', 'NUMA', 'LINK', '>FROM HOST GB/s', '>TO HOST GB/s'], gpuRows),
  ];
  if (pairs.length > 0) {
    const alone = (gpu: number): number => gpus[gpu]?.loadGBps ?? 0;
    const both = (rates: readonly [number, number] | null): string =>
      rates === null ? '-' : `${gbps(rates[0])} / ${gbps(rates[1])}`;
    parts.push(
      renderTable(
        ['PAIR', '>GPU TO GPU, BACK GB/s', '>FROM HOST, BOTH GB/s', '>OF THE SUM', '>WITH HELP GB/s'],
        pairs.map(({ gpus: [a, b], peerGBps, helpedGBps, loadTogetherGBps }) => [
          `${a} and ${b}`,
          both(peerGBps),
          gbps(loadTogetherGBps),
          `${Math.round((100 * loadTogetherGBps) / Math.max(alone(a) + alone(b), Number.MIN_VALUE))}%`,
          both(helpedGBps),
        ]),
      ),
    );
  }
  const { switches, links, findings } = concludeTopology(topology, stated);
  parts.push(
    [
      ...switches.map(
        ({ gpus: members, uplinkGBps }) =>
          `${members.length === 1 ? 'GPU' : 'GPUs'} ${members.join(', ')}: a way to host memory of ` +
          `${gbps(uplinkGBps)} GB/s`,
      ),
      ...links.map(
        ({ gpus: [a, b], kind, linkGBps, isHelp }) =>
          `GPU ${a} and GPU ${b}: ${kind === 'nvlink' ? 'NVLink' : 'PCIe'} of ${gbps(linkGBps)} GB/s, ` +
          (isHelp ? 'each loads faster with the help of the other' : 'no help in loading'),
      ),
      ...findings,
    ].join('\n'),
  );
  if (topology.allAtOnceGBps !== null)
    parts.push(`all GPUs at once: ${gbps(topology.allAtOnceGBps)} GB/s from host memory`);
  parts.push(`measured on this machine with copies of ${formatBytes(copyBytes)}`);
  return parts.join('\n\n');
}
