import fc from 'fast-check';
import { expect, test } from 'vitest';
import { childEnvironment } from './child-environment.ts';

const passes = (name: string): boolean => name in childEnvironment({ [name]: 'value' });

test.each([
  'PATH',
  'HOME',
  'LC_ALL',
  'TZ',
  'NODE_OPTIONS',
  'NODE_EXTRA_CA_CERTS',
  'CUDA_VISIBLE_DEVICES',
  'OMP_NUM_THREADS',
])('children see %s', (name) => expect(passes(name)).toBe(true));

test.each(['HANDLER_SETTING', 'HANDLER_API_KEY'])('handlers see %s, which their operator gives them', (name) =>
  expect(passes(name)).toBe(true),
);

test.each([
  'AWS_SECRET_ACCESS_KEY',
  'TURNTABLE_API_KEYS',
  'TURNTABLE_FLEET_SECRET',
  'TURNTABLE_REDIS_URL',
  'GITHUB_TOKEN',
  'NODE_AUTH_TOKEN',
  'NPM_TOKEN',
  'DATABASE_URL',
  'SSH_AUTH_SOCK',
  'MY_HANDLER_MODE',
  'path',
])('children do not see %s', (name) => expect(passes(name)).toBe(false));

test('a name that nobody has listed is not passed', () => {
  const others = fc.stringMatching(/^(APP|AZURE|GOOGLE|AWS|PG|X)_[A-Z_]{1,20}$/);
  fc.assert(
    fc.property(others, (name) => {
      expect(passes(name)).toBe(false);
    }),
  );
});
