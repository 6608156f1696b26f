/** The benchmarks of replays and planners run small. */
import { testSmall } from '../support/small-benchmarks.ts';

testSmall('replays');
