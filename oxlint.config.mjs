/** The linter's configuration. What is long in it is one rule: imports go down the house, and through a folder's door. */

/** From the ground up. */
const floors = [
  'tools',
  'report',
  'client',
  'tensor',
  'coding',
  'process',
  'onnx',
  'operators',
  'hardware',
  'profile',
  'rows',
  'plan',
  'schedule',
  'gpu',
  'cpu',
  'live',
  'store',
  'fleet',
  'queue',
  'host',
  'replay',
  'cli',
];

// The linter's regular expressions cannot look ahead: this is every path but index.ts.
const pastTheDoor = '([^/]+/.*|[^i][^/]*|i[^n][^/]*|in[^d][^/]*|ind[^e][^/]*|inde[^x][^/]*|index[^.][^/]*)$';
const door = "Another folder's index.ts is its only door.";

/** @param {readonly { regex: string, message: string }[]} doors */
function restrict(files, floor, doors) {
  const above = floors.slice(floors.indexOf(floor) + 1);
  const message = `Imports go down the house, never up: ${floor} stands below ${above.join(', ')}.`;
  const up = above.length === 0 ? [] : [{ regex: `^(\\.\\./)+(${above.join('|')})/`, message }];
  return { files: [files], rules: { 'no-restricted-imports': ['error', { patterns: [...up, ...doors] }] } };
}

const importRule = (floor) =>
  restrict(`src/${floor}/**/*.ts`, floor, [
    { regex: `^(\\.\\./)+(${floors.join('|')})/${pastTheDoor}`, message: door },
  ]);

/** src/gpu has folders `process` and `operators` of its own, some steps up; the floors of these names are one more. */
const ownOfGpu = ['process', 'operators'];
const importRulesInsideGpu = [2, 3].map((steps) =>
  restrict(`src/gpu/${'*/'.repeat(steps - 1)}**/*.ts`, 'gpu', [
    {
      regex: `^(\\.\\./)+(${floors.filter((floor) => !ownOfGpu.includes(floor)).join('|')})/${pastTheDoor}`,
      message: door,
    },
    { regex: `^(\\.\\./){${steps},}(${ownOfGpu.join('|')})/${pastTheDoor}`, message: door },
  ]),
);

export default {
  plugins: ['typescript', 'unicorn', 'oxc', 'import', 'promise', 'vitest'],
  categories: {
    correctness: 'error',
    suspicious: 'error',
    perf: 'error',
  },
  env: {
    node: true,
    es2024: true,
  },
  ignorePatterns: ['dist', 'node_modules', '.cache', 'data'],
  rules: {
    'typescript/no-floating-promises': 'error',
    'typescript/no-misused-promises': 'error',
    'typescript/no-explicit-any': 'error',
    'typescript/no-restricted-types': [
      'error',
      {
        types: {
          'Record<string, Tensor>':
            'Names of tensors are data: as keys of an object they change order (311) or vanish (__proto__). Use a list, NamedValue or a Map.',
          'Record<string, OrtModule.Tensor>':
            'Names of tensors are data: as keys of an object they change order (311) or vanish (__proto__). Use NativeSession of src/tensor.',
          'OrtModule.InferenceSession.FeedsType':
            'Names of tensors are data: as keys of an object they change order (311) or vanish (__proto__). Use NativeSession of src/tensor.',
          'OrtModule.InferenceSession.ReturnType':
            'Names of tensors are data: as keys of an object they change order (311) or vanish (__proto__). Use NativeSession of src/tensor.',
        },
      },
    ],
    'typescript/await-thenable': 'error',
    'typescript/consistent-type-imports': 'error',
    'typescript/switch-exhaustiveness-check': [
      'error',
      {
        considerDefaultExhaustiveForUnions: true,
      },
    ],
    'typescript/return-await': ['error', 'error-handling-correctness-only'],
    // Types make circles as well: a file of one cannot be read without the others.
    'import/no-cycle': ['error', { ignoreTypes: false }],
    'eslint/no-unused-vars': [
      'error',
      {
        argsIgnorePattern: '^_',
        varsIgnorePattern: '^_',
      },
    ],
    'eslint/eqeqeq': 'error',
    'eslint/prefer-const': 'error',
    'eslint/no-console': 'off',
    'typescript/no-unsafe-type-assertion': 'off',
    'typescript/consistent-return': 'off',
    'vitest/valid-expect': [
      'error',
      {
        maxArgs: 2,
      },
    ],
    'import/no-unassigned-import': 'off',
    'import/no-named-as-default-member': 'off',
    'import/no-named-as-default': 'off',
    'eslint/no-await-in-loop': 'off',
    'eslint/no-underscore-dangle': 'off',
    'eslint/no-shadow': 'off',
    'unicorn/no-array-sort': 'off',
    'unicorn/no-array-reverse': 'off',
    'eslint/no-bitwise': 'off',
  },
  overrides: [
    ...floors.map(importRule),
    ...importRulesInsideGpu,
    {
      files: ['test/**/*.ts', 'bench/**/*.ts', 'functions/_training/**/*.ts', '**/*.test.ts'],
      rules: {
        'typescript/no-restricted-types': 'off',
      },
    },
  ],
};
