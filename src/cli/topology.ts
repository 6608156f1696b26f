import { Command, type AnyCommand } from './commander.ts';
import { CudaError, measureTopology, openCuda, type MeasuredTopology } from '../gpu/index.ts';
import { concludeTopology, parseTopology, type StatedTopology } from '../hardware/index.ts';
import { tellingOf } from './error.ts';
import { formatBytes } from '../tools/index.ts';
import { parseCount } from './values.ts';
import { renderTable } from './table.ts';

export function topologyCommand(): AnyCommand {
  return new Command('topology')
    .description(
      'Measure copies from pinned host memory to each GPU alone, to each two and to all at once, from GPU to GPU, ' +
        'and to a GPU with the help of another, and say what follows: which GPUs share a way to host memory, which ' +
        'have NVLink, and where parallel transmission pays.',
    )
    .option('--copy-mib <number>', 'size of each copy that is timed, in MiB', parseCount, 64)
    .option(
      '--as <topology>',
      'say what follows from this instead, as the setting gpu.topology has it: 0+1 2+3 0=2 for two switches and NVLink',
    )
    .option('--json', 'print JSON')
    .action(async ({ copyMib, as, json }) => {
      const stated = as === undefined ? undefined : parseTopology(as);
      const topology = await tellingOf('there is nothing to measure', [CudaError], async () => {
        using cuda = openCuda({ need: 'driver' });
        return await measureTopology(cuda, { copyBytes: copyMib * 2 ** 20 });
      });
      const concluded = concludeTopology(topology, stated);
      console.log(json === true ? JSON.stringify({ ...topology, concluded }, null, 2) : topologyText(topology, stated));
    });
}

const gbps = (value: number): string => value.toFixed(1);

/** What was measured, and what it is taken for. @throws MachineError for a stated topology that cannot be */
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
