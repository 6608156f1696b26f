export {
  beliefs,
  lacksOf,
  sentenceOf,
  specOf,
  type Belief,
  type BeliefResult,
  type Lacks,
  type SelfTestReport,
} from './beliefs.ts';
export { identityOf } from './identity.ts';
export { selfTest, type SelfTestOptions } from './self-test.ts';
