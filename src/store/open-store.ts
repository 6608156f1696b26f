import { resolve } from 'node:path';
import { FolderStore } from './folder-store.ts';
import type { Store } from './store.ts';

/**
 * The store at `s3://BUCKET/PREFIX`, at the address of a bucket on another server, or in a folder. The keys of a bucket
 * are read as Amazon's own tools do: from AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN; the region
 * from AWS_REGION, the server of `s3://` from AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL.
 *
 * What speaks to buckets is loaded for one alone. @throws Error with a sentence where a variable is missing, or the address names no bucket
 */
export async function openStore(
  place: string,
  environment: Readonly<Record<string, string | undefined>>,
): Promise<Store> {
  if (!/^(s3|https?):\/\//.test(place)) return new FolderStore(resolve(place));
  const { AWS_ACCESS_KEY_ID: accessKeyId, AWS_SECRET_ACCESS_KEY: secretAccessKey } = environment;
  if (!accessKeyId || !secretAccessKey) {
    throw new Error(`the bucket ${place} needs its keys: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY`);
  }
  const region = environment['AWS_REGION'] || environment['AWS_DEFAULT_REGION'] || 'us-east-1';
  const url = bucketUrl(place, region, environment).replace(/\/+$/, '');
  if (new URL(url).pathname === '/') throw new Error(`${place} names a server, but no bucket on it`);
  const { Bucket } = await import('./bucket.ts');
  return new Bucket({
    url,
    region,
    accessKeyId,
    secretAccessKey,
    sessionToken: environment['AWS_SESSION_TOKEN'] || undefined,
  });
}

function bucketUrl(place: string, region: string, environment: Readonly<Record<string, string | undefined>>): string {
  const [, path] = /^s3:\/\/(.+)$/.exec(place) ?? [];
  if (path === undefined) return place;
  const server = environment['AWS_ENDPOINT_URL_S3'] || environment['AWS_ENDPOINT_URL'];
  return `${(server || `https://s3.${region}.amazonaws.com`).replace(/\/+$/, '')}/${path}`;
}
