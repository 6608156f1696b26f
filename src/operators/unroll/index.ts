export { unrollRecurrent, type UnrolledModel, type UnrollOptions } from './unroll.ts';
