import { expect, test } from 'vitest';
import { openStore } from './open-store.ts';

const keys = { AWS_ACCESS_KEY_ID: 'id', AWS_SECRET_ACCESS_KEY: 'key' };

test.each([
  ['s3://models', keys, 'the bucket at https://s3.us-east-1.amazonaws.com/models'],
  [
    's3://models/lab/',
    { ...keys, AWS_REGION: 'eu-west-3' },
    'the bucket at https://s3.eu-west-3.amazonaws.com/models/lab',
  ],
  ['s3://models', { ...keys, AWS_ENDPOINT_URL: 'http://minio:9000/' }, 'the bucket at http://minio:9000/models'],
  [
    's3://models',
    { ...keys, AWS_ENDPOINT_URL: 'http://one', AWS_ENDPOINT_URL_S3: 'http://other' },
    'the bucket at http://other/models',
  ],
  ['https://s3.example.org/models', keys, 'the bucket at https://s3.example.org/models'],
  ['/srv/models', {}, 'the folder /srv/models'],
])('%s is a store', async (place, environment, expected) => {
  expect((await openStore(place, environment)).place).toBe(expected);
});

test('a bucket without keys, and a server without a bucket, are refused with what is missing', async () => {
  await expect(openStore('s3://models', {})).rejects.toThrow('set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY');
  await expect(openStore('https://s3.example.org', keys)).rejects.toThrow('names a server, but no bucket');
});
