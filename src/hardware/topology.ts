/**
 * Which GPUs of a machine share switches or have NVLink, concluded from the bandwidths of copies. What /sys says of
 * PCIe switches is not enough: a virtual machine hides them, and a switch with an uplink wide enough for two links
 * slows neither.
 */
import { MachineError } from './machine-file.ts';

/** Measured bandwidths of copies, in decimal GB/s. GPUs are named by position. */
export interface CopyBandwidths {
  readonly gpus: readonly {
    /** Pinned host memory to this GPU, with no other copy under way. */
    readonly loadGBps: number;
  }[];
  /** One entry for every two GPUs. */
  readonly pairs: readonly {
    readonly gpus: readonly [number, number];
    /** Host memory to both at once, the sum of both. */
    readonly loadTogetherGBps: number;
    /** From the first to the second, and back; null if they cannot reach each other. */
    readonly peerGBps: readonly [number, number] | null;
    /**
     * Host memory to the first while the second fetches half of it and passes it on, and the other way round; null if
     * they cannot reach each other.
     */
    readonly helpedGBps: readonly [number, number] | null;
  }[];
  /** Host memory to all GPUs at once, their sum; null for fewer than three. */
  readonly allAtOnceGBps: number | null;
}

export interface TopologySwitch {
  /** GPUs that share a link to host memory, ascending. */
  readonly gpus: readonly number[];
  /** Host memory to all of them together. */
  readonly uplinkGBps: number;
}

export interface TopologyLink {
  readonly gpus: readonly [number, number];
  /** `pcie`: they reach each other no faster than over PCIe. */
  readonly kind: 'nvlink' | 'pcie';
  /** The slower direction. */
  readonly linkGBps: number;
  /** Whether a GPU loads faster if the other fetches part of its weights (parallel transmission). */
  readonly isHelp: boolean;
}

export interface Topology {
  /** In the order of their first GPUs. */
  readonly switches: readonly TopologySwitch[];
  readonly links: readonly TopologyLink[];
  /** The reasons for this result, in sentences. */
  readonly findings: readonly string[];
}

/** A topology that a setting gives instead of the measurement. */
export interface StatedTopology {
  readonly switches: readonly (readonly number[])[];
  readonly nvlinks: readonly (readonly [number, number])[];
}

const numbers = (word: string): number[] => word.split(/[+=]/).map(Number);

/** Two links that share an uplink reach half of their sum, separate ones all of it. Below the middle they share. */
const sharedShareMax = 0.75;
/** Over PCIe a GPU reaches another no faster than host memory; NVLink starts at about twice that. */
const nvlinkFactorMin = 1.3;
/** Speedup that justifies using another GPU's link. */
const helpFactorMin = 1.15;

const gbps = (value: number): string => `${value.toFixed(1)} GB/s`;

/**
 * @throws MachineError if `stated` names a GPU that does not exist, one twice, or NVLink between GPUs without a
 * connection
 */
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
 * Parses `0+1 2+3 0=2 1=3`: `+` joins GPUs that share a switch, `=` those with NVLink. A GPU that is not named is
 * alone.
 * @throws MachineError for any other text
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

/** Groups in which every two GPUs share an uplink; the clearest pairs join first. */
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

/** The highest bandwidth of its GPUs, alone or together. */
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
