/** For `node --import` in a host: collects all garbage with each SIGUSR2, so that what is left is what it keeps. */
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';

setFlagsFromString('--expose-gc');
const collect = runInNewContext('gc');

process.on('SIGUSR2', () => collect());
