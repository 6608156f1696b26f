export { unrollRecurrent } from './unroll.ts';
