import { describe, expect, it } from 'vitest';
import { MinstdRandom } from '../../scripts/convert-trace/minstd.ts';
import { poissonTrace } from '../../src/replay/index.ts';

const names = (count: number): string[] => Array.from({ length: count }, (_, index) => `f${index}`);

describe('minstd_rand', () => {
  // A C++ program printed these numbers, with std::minstd_rand(0), exponential_distribution(100) and
  // uniform_int_distribution(0, 179).
  it('minstd_rand draws the same numbers as C++', () => {
    const random = new MinstdRandom(0);
    const drawn = Array.from({ length: 6 }, () => [random.exponential(100), random.below(180)] as const);
    const expected = [
      [0.0008886667741460807, 108],
      [0.03440636032500214, 34],
      [0.005075117675682144, 47],
      [0.0009381384642547641, 100],
      [0.016584530323978896, 106],
      [0.020925989394853163, 179],
    ] as const;
    for (const [index, [interval, position]] of expected.entries()) {
      expect(drawn[index]![0]).toBeCloseTo(interval, 15);
      expect(drawn[index]![1]).toBe(position);
    }
  });

  it('minstd_rand still agrees with C++ after eleven thousand draws', () => {
    const random = new MinstdRandom(0);
    let intervals = 0;
    let positions = 0;
    for (let index = 0; index < 11_000; index++) {
      intervals += random.exponential(100);
      positions += random.below(180) * ((index % 7) + 1);
    }
    expect(intervals).toBeCloseTo(111.12388082322765, 9);
    expect(positions).toBe(3_969_278);
  });

  it('minstd_rand has the 10,000th value that the C++ standard states', () => {
    // [rand.predef]: the 10000th consecutive invocation of a default-constructed minstd_rand produces 399268537.
    const random = new MinstdRandom(1);
    let value = 0;
    for (let index = 0; index < 10_000; index++) value = random.next();
    expect(value).toBe(399_268_537);
  });
});

describe('Poisson arrivals', () => {
  it("Poisson arrivals drawn by minstd_rand are those of the paper's artifact", () => {
    const trace = poissonTrace({
      functionNames: names(180),
      ratePerS: 100,
      requests: 3,
      random: () => new MinstdRandom(0),
    });
    const [first, second, third] = [...trace.invocations()];
    expect([first?.functionIndex, second?.functionIndex, third?.functionIndex]).toEqual([108, 34, 47]);
    expect(third?.arrivalMs).toBeCloseTo(40.37014477483, 9);
  });
});
