import { expect, test } from 'vitest';
import { hostAddress } from './client.ts';

test.each(['somewhere', 'localhost:8000', 'ftp://127.0.0.1', ''])(
  'the address %j of a host is refused by the name of the variable or the option that has it',
  (url) => {
    expect(() => hostAddress(url, { TURNTABLE_URL: url })).toThrow(`TURNTABLE_URL is "${url}", but must be`);
    expect(() => hostAddress(url, { TURNTABLE_URL: 'http://127.0.0.1:9000' })).toThrow(
      `--url is "${url}", but must be`,
    );
    expect(() => hostAddress(url, {})).toThrow(
      `--url is "${url}", but must be an address such as http://127.0.0.1:8000`,
    );
  },
);
