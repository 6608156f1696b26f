import fc from 'fast-check';

// fast-check prints the seed and path of a failing property; this makes every property of a run use one known seed.
fc.configureGlobal({ seed: Number(process.env['TURNTABLE_SEED']) });
