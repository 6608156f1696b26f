export { unrollRecurrent, type UnrolledModel } from './unroll.ts';
