import fc from 'fast-check';

const seed = process.env.TURNTABLE_SEED ?? (process.env.CI ? '20261121' : String(Date.now() % 2 ** 31));
// fast-check prints the seed and path of a failing property; this makes every property of a run use one known seed.
fc.configureGlobal({ seed: Number(seed) });
