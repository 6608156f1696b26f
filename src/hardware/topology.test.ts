/** Topologies concluded from bandwidths: recorded machines as measured, others from their makers' figures. */
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { concludeTopology, parseTopology, type CopyBandwidths, type Topology } from './topology.ts';

/** A machine of equal links; `pair` says what two GPUs reach together and between each other. */
function machine(
  count: number,
  aloneGBps: number,
  pair: (
    a: number,
    b: number,
  ) => {
    readonly together: number;
    readonly peer?: number;
    readonly helped?: number;
  },
  allAtOnceGBps: number | null = null,
): CopyBandwidths {
  const pairs = Array.from({ length: count }, (_, a) =>
    Array.from({ length: count }, (__, b): [number, number] => [a, b]).filter(([, b]) => b > a),
  ).flat();
  return {
    gpus: Array.from({ length: count }, () => ({ loadGBps: aloneGBps })),
    pairs: pairs.map(([a, b]) => {
      const { together, peer, helped } = pair(a, b);
      return {
        gpus: [a, b],
        loadTogetherGBps: together,
        peerGBps: peer === undefined ? null : [peer, peer],
        helpedGBps: helped === undefined ? null : [helped, helped],
      };
    }),
    allAtOnceGBps,
  };
}

const groupsOf = ({ switches }: Topology): (readonly number[])[] => switches.map(({ gpus }) => gpus);
const helpers = ({ links }: Topology): (readonly number[])[] =>
  links.filter(({ isHelp }) => isHelp).map(({ gpus }) => gpus);

/** Four V100 on two switches, with NVLink of one or two bricks. Links of 12.2 GB/s; two on one switch share 12.2. */
const p3 = machine(
  4,
  12.2,
  (a, b) => ({
    together: Math.floor(a / 2) === Math.floor(b / 2) ? 12.2 : 24.1,
    peer: a + b === 3 ? 22.1 : 44.3,
    helped: Math.floor(a / 2) === Math.floor(b / 2) ? 12.2 : 23.2,
  }),
  24.3,
);

describe('the topology of', () => {
  test('p3.8xlarge is two switches of two GPUs, with NVLink that helps across them', () => {
    const found = concludeTopology(p3);
    expect(groupsOf(found)).toEqual([
      [0, 1],
      [2, 3],
    ]);
    expect(found.switches.map(({ uplinkGBps }) => uplinkGBps)).toEqual([12.2, 12.2]);
    expect(found.links.every(({ kind }) => kind === 'nvlink')).toBe(true);
    expect(helpers(found)).toEqual([
      [0, 2],
      [0, 3],
      [1, 2],
      [1, 3],
    ]);
    expect(found.findings).toContain('GPU 0 and GPU 1 load at 50% of the sum of both alone: they share a switch.');
  });

  test('a virtual machine that hides its switch is one switch, since two GPUs at once are no faster than one', () => {
    // Recorded on such a machine: 12.2 GB/s for the pair, and nothing under /sys joins them.
    const found = concludeTopology(machine(2, 11.9, () => ({ together: 12.2 })));
    expect(groupsOf(found)).toEqual([[0, 1]]);
    expect(found.switches[0]!.uplinkGBps).toBe(12.2);
    expect(helpers(found)).toEqual([]);
  });

  test('four GPUs behind one switch is one group that has the whole uplink', () => {
    const found = concludeTopology(machine(4, 24.8, () => ({ together: 25.1 }), 25.3));
    expect(groupsOf(found)).toEqual([[0, 1, 2, 3]]);
    expect(found.switches[0]!.uplinkGBps).toBe(25.3);
  });

  test('a machine without NVLink has no helpers, although its GPUs reach each other over PCIe', () => {
    const found = concludeTopology(machine(2, 25.2, () => ({ together: 49.8, peer: 21.4, helped: 25 })));
    expect(groupsOf(found)).toEqual([[0], [1]]);
    expect(found.links).toEqual([{ gpus: [0, 1], kind: 'pcie', linkGBps: 21.4, isHelp: false }]);
    expect(found.findings.join(' ')).toContain('No two GPUs have NVLink; no GPU loads faster with the help of another');
  });

  test('GPUs without NVLink has helpers if the measured copies gain from help', () => {
    const found = concludeTopology(machine(2, 12, () => ({ together: 23.8, peer: 13, helped: 19.5 })));
    expect(found.links).toEqual([{ gpus: [0, 1], kind: 'pcie', linkGBps: 13, isHelp: true }]);
  });

  test('NVLink that does not make loading faster has no helpers', () => {
    const found = concludeTopology(machine(2, 50, () => ({ together: 51, peer: 180, helped: 50 })));
    expect(found.links).toEqual([{ gpus: [0, 1], kind: 'nvlink', linkGBps: 180, isHelp: false }]);
  });

  test('GPUs of which only one pair is slow together is not one switch', () => {
    const found = concludeTopology(machine(3, 12, (a, b) => ({ together: a === 0 && b === 2 ? 24 : 12 }), 24));
    expect(groupsOf(found)).toHaveLength(2);
    expect(found.findings.join(' ')).toContain('not one switch');
  });

  test('GPUs that host memory limits all together says so', () => {
    const found = concludeTopology(machine(4, 50, () => ({ together: 99 }), 110));
    expect(groupsOf(found)).toHaveLength(4);
    expect(found.findings.at(-1)).toBe(
      'All GPUs at once load 110.0 GB/s of the 200.0 GB/s that their switches carry: host memory, or a way above the switches, holds them back.',
    );
  });

  test('one GPU, or none, is trivial', () => {
    expect(concludeTopology(machine(1, 50, () => ({ together: 0 })))).toEqual({
      switches: [{ gpus: [0], uplinkGBps: 50 }],
      links: [],
      findings: [],
    });
    expect(concludeTopology(machine(0, 0, () => ({ together: 0 }))).switches).toEqual([]);
  });

  test('any grouping is found again from bandwidths that are a few percent off', () => {
    const grouping = fc.array(fc.nat(3), { minLength: 2, maxLength: 8 });
    fc.assert(
      fc.property(
        grouping,
        fc.double({ min: 5, max: 60, noNaN: true }),
        fc.array(fc.double({ min: 0.92, max: 1.08, noNaN: true }), { minLength: 28, maxLength: 28 }),
        (group, alone, noise) => {
          let at = 0;
          const found = concludeTopology(
            machine(group.length, alone, (a, b) => ({
              together: alone * (group[a] === group[b] ? 1 : 2) * noise[at++]!,
            })),
          );
          const expected = [...new Set(group)].map((each) =>
            [...group.keys()].filter((index) => group[index] === each),
          );
          expect(groupsOf(found)).toEqual(expected);
        },
      ),
    );
  });
});

describe('a topology that is stated', () => {
  test('overrides the measured one, with the bandwidths that were measured', () => {
    const found = concludeTopology(p3, parseTopology('0+2 1 0=1'));
    expect(found.switches).toEqual([
      { gpus: [0, 2], uplinkGBps: 24.1 },
      { gpus: [1], uplinkGBps: 12.2 },
      { gpus: [3], uplinkGBps: 12.2 },
    ]);
    expect(found.links).toEqual([{ gpus: [0, 1], kind: 'nvlink', linkGBps: 44.3, isHelp: true }]);
  });

  test.each([
    ['0+1+', "'0+1+' in the topology '0+1+' is neither GPUs of a switch such as 0+1 nor GPUs with NVLink such as 0=2"],
    ['0 one', "'one' in the topology '0 one' is neither GPUs of a switch such as 0+1 nor GPUs with NVLink such as 0=2"],
  ])('as %s is refused with the word that is wrong', (text, sentence) => {
    expect(() => parseTopology(text)).toThrow(sentence);
  });

  test.each([
    ['0+9', 'the topology of the settings names GPU 9, but there are 4, counted from 0'],
    ['0+1 1+2', 'the topology of the settings names GPU 1 twice'],
  ])('as %s is refused on a machine of four', (text, sentence) => {
    expect(() => concludeTopology(p3, parseTopology(text))).toThrow(sentence);
  });

  test('with NVLink between GPUs that cannot reach each other is refused', () => {
    const apart = machine(2, 12, () => ({ together: 24 }));
    expect(() => concludeTopology(apart, parseTopology('0 1 0=1'))).toThrow(
      'has NVLink between GPU 0 and GPU 1, which cannot reach each other',
    );
  });
});
