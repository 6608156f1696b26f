/**
 * How a machine's GPUs hang together, from the bandwidths of copies. What /sys says of PCIe switches is not enough: a
 * virtual machine hides them, and a bus that is wide enough for two links at once holds neither of them back.
 */
import { MachineError } from './machine-file.ts';

/** What copies were measured at, in decimal GB/s. GPUs are named by position. */
export interface CopyBandwidths {
  readonly gpus: readonly {
    /** Pinned host memory to this GPU, with no other copy under way. */
    readonly loadGBps: number;
  }[];
  /** Each two GPUs. */
  readonly pairs: readonly {
    readonly gpus: readonly [number, number];
    /** Host memory to both at once, both together. */
    readonly loadTogetherGBps: number;
    /** From the first to the second, and back; null where they cannot reach each other. */
    readonly peerGBps: readonly [number, number] | null;
    /**
     * Host memory to the first while the second fetches half of it and hands it on, and the other way round; null where
     * they cannot reach each other.
     */
    readonly helpedGBps: readonly [number, number] | null;
  }[];
  /** Host memory to all GPUs at once, all together; null for fewer than three. */
  readonly allAtOnceGBps: number | null;
}

export interface TopologySwitch {
  /** GPUs that share a way to host memory, ascending. */
  readonly gpus: readonly number[];
  /** All of them together, from host memory. */
  readonly uplinkGBps: number;
}

export interface TopologyLink {
  readonly gpus: readonly [number, number];
  /** `pcie`: they reach each other, and no faster than over PCIe. */
  readonly kind: 'nvlink' | 'pcie';
  /** The slower direction. */
  readonly linkGBps: number;
  /** Whether one loads faster when the other fetches a part of its weights: parallel transmission. */
  readonly isHelp: boolean;
}

export interface Topology {
  /** In the order of their first GPUs. */
  readonly switches: readonly TopologySwitch[];
  readonly links: readonly TopologyLink[];
  /** Why it is taken for that, in sentences. */
  readonly findings: readonly string[];
}

/** What a setting says instead of the measurement. */
export interface StatedTopology {
  readonly switches: readonly (readonly number[])[];
  readonly nvlinks: readonly (readonly [number, number])[];
}

const numbers = (word: string): number[] => word.split(/[+=]/).map(Number);

/** Two links that share a way reach half of their sum, two that do not the whole: below the middle they share. */
const sharedShareMax = 0.75;
/** Over PCIe a GPU reaches another no faster than host memory; NVLink begins at about twice that. */
const nvlinkFactorMin = 1.3;
/** What help has to bring before another GPU's link is taken up for it. */
const helpFactorMin = 1.15;

const gbps = (value: number): string => `${value.toFixed(1)} GB/s`;

/** @throws MachineError when `stated` names a GPU that there is not, or one twice, or NVLink where none reaches */
export function concludeTopology(bandwidths: CopyBandwidths, stated?: StatedTopology): Topology {
  const findings: string[] = [];
  const groups = stated === undefined ? measuredGroups(bandwidths, findings) : statedGroups(bandwidths, stated);
  const switches = groups.map((gpus) => ({ gpus, uplinkGBps: uplinkOf(gpus, bandwidths) }));
  const links = stated === undefined ? measuredLinks(bandwidths, findings) : statedLinks(bandwidths, stated);
  if (stated !== undefined) findings.push('Switches and NVLink are as the setting says; bandwidths are measured.');
  const { allAtOnceGBps } = bandwidths;
  const expectedGBps = switches.reduce((sum, { gpus, uplinkGBps }) => {
    const aloneGBps = gpus.reduce((all, gpu) => all + bandwidths.gpus[gpu]!.loadGBps, 0);
    return sum + Math.min(uplinkGBps, aloneGBps);
  }, 0);
  if (allAtOnceGBps !== null && allAtOnceGBps < sharedShareMax * expectedGBps) {
    findings.push(
      `All GPUs at once load ${gbps(allAtOnceGBps)} of the ${gbps(expectedGBps)} that their switches carry: ` +
        'host memory, or a ' +
        'way above the switches, holds them back.',
    );
  }
  return { switches, links, findings };
}

/**
 * `0+1 2+3 0=2 1=3`: GPUs joined by `+` share a switch, those joined by `=` have NVLink; one that is not named is
 * alone.
 *
 * @throws MachineError for what is no such text
 */
export function parseTopology(text: string): StatedTopology {
  const words = text.trim().split(/\s+/);
  const wrong = words.find((word) => !/^\d+(?:(?:\+\d+)*|=\d+)$/.test(word));
  if (wrong !== undefined) {
    throw new MachineError(
      `'${wrong}' in the topology '${text}' is neither GPUs of a switch such as 0+1 nor GPUs with NVLink such as 0=2`,
    );
  }
  return {
    switches: words.filter((word) => !word.includes('=')).map(numbers),
    nvlinks: words.filter((word) => word.includes('=')).map((word) => numbers(word) as [number, number]),
  };
}

const aloneTogether = (bandwidths: CopyBandwidths, [one, other]: readonly [number, number]): number =>
  bandwidths.gpus[one]!.loadGBps + bandwidths.gpus[other]!.loadGBps;

/** Groups in which each two share; the surest pairs join first. */
function measuredGroups(bandwidths: CopyBandwidths, findings: string[]): number[][] {
  const shares = bandwidths.pairs
    .map(({ gpus, loadTogetherGBps }) => ({ gpus, share: loadTogetherGBps / aloneTogether(bandwidths, gpus) }))
    .filter(({ share }) => share < sharedShareMax)
    .toSorted((one, other) => one.share - other.share);
  const doShare = (one: number, other: number): boolean =>
    shares.some(({ gpus }) => gpus.includes(one) && gpus.includes(other));
  let groups = bandwidths.gpus.map((_, index) => [index]);
  for (const { gpus, share } of shares) {
    const [one, other] = gpus.map((gpu) => groups.find((group) => group.includes(gpu))!);
    if (one === undefined || other === undefined || one === other) continue;
    const stranger = one.flatMap((a) => other.map((b) => [a, b] as const)).find(([a, b]) => !doShare(a, b));
    const pair = `GPU ${gpus[0]} and GPU ${gpus[1]} load at ${Math.round(share * 100)}% of the sum of both alone`;
    if (stranger === undefined) {
      groups = [...groups.filter((group) => group !== one && group !== other), [...one, ...other]];
      findings.push(`${pair}: they share a switch.`);
    } else {
      const [a, b] = stranger;
      findings.push(`${pair}, but GPU ${a} and GPU ${b} beside them do not hold each other back: not one switch.`);
    }
  }
  if (shares.length === 0 && bandwidths.pairs.length > 0) {
    findings.push('No two GPUs hold each other back: each has a way to host memory of its own.');
  }
  return inOrder(groups);
}

function measuredLinks(bandwidths: CopyBandwidths, findings: string[]): TopologyLink[] {
  const links = bandwidths.pairs.flatMap(({ gpus, peerGBps, helpedGBps }): TopologyLink[] => {
    if (peerGBps === null) return [];
    const alone = gpus.map((gpu) => bandwidths.gpus[gpu]!.loadGBps);
    const linkGBps = Math.min(...peerGBps);
    const kind = linkGBps > nvlinkFactorMin * Math.max(...alone) ? 'nvlink' : 'pcie';
    const isHelp = helpedGBps !== null && helpedGBps.every((helped, index) => helped > helpFactorMin * alone[index]!);
    return [{ gpus, kind, linkGBps, isHelp }];
  });
  if (bandwidths.pairs.length > 0) {
    const nvlinks = links.filter(({ kind }) => kind === 'nvlink').length;
    const helping = links.filter(({ isHelp }) => isHelp).length;
    findings.push(
      `${nvlinks === 0 ? 'No two GPUs have' : `${nvlinks} of ${bandwidths.pairs.length} pairs have`} NVLink; ` +
        (helping === 0
          ? 'no GPU loads faster with the help of another, so that each loads alone.'
          : `in ${helping} of ${bandwidths.pairs.length} pairs each loads faster with the help of the other.`),
    );
  }
  return links;
}

function statedGroups({ gpus }: CopyBandwidths, { switches }: StatedTopology): number[][] {
  const named = switches.flat();
  for (const [at, gpu] of named.entries()) {
    checkGpu(gpu, gpus.length);
    if (named.indexOf(gpu) !== at) throw new MachineError(`the topology of the settings names GPU ${gpu} twice`);
  }
  const alone = [...gpus.keys()].filter((gpu) => !named.includes(gpu));
  return inOrder([...switches, ...alone.map((gpu) => [gpu])]);
}

function statedLinks(bandwidths: CopyBandwidths, { nvlinks }: StatedTopology): TopologyLink[] {
  return nvlinks.map((gpus): TopologyLink => {
    for (const gpu of gpus) checkGpu(gpu, bandwidths.gpus.length);
    const pair = bandwidths.pairs.find((each) => gpus.every((gpu) => each.gpus.includes(gpu)));
    const peerGBps = pair?.peerGBps;
    if (pair === undefined || peerGBps === null || peerGBps === undefined) {
      throw new MachineError(
        `the topology of the settings has NVLink between GPU ${gpus[0]} and GPU ${gpus[1]}, which cannot ` +
          'reach each other',
      );
    }
    return { gpus: pair.gpus, kind: 'nvlink', linkGBps: Math.min(...peerGBps), isHelp: true };
  });
}

function checkGpu(gpu: number, count: number): void {
  if (gpu >= count) {
    throw new MachineError(`the topology of the settings names GPU ${gpu}, but there are ${count}, counted from 0`);
  }
}

/** The most that any of its GPUs reached, alone or together. */
function uplinkOf(gpus: readonly number[], { gpus: all, pairs, allAtOnceGBps }: CopyBandwidths): number {
  const together = pairs.filter(({ gpus: pair }) => pair.every((gpu) => gpus.includes(gpu)));
  return Math.max(
    ...gpus.map((gpu) => all[gpu]!.loadGBps),
    ...together.map(({ loadTogetherGBps }) => loadTogetherGBps),
    gpus.length === all.length && allAtOnceGBps !== null ? allAtOnceGBps : 0,
  );
}

function inOrder(groups: readonly (readonly number[])[]): number[][] {
  return groups.map((group) => group.toSorted((a, b) => a - b)).toSorted(([one], [other]) => one! - other!);
}
