/** The benchmarks of many processes run small. */
import { testSmall } from '../support/small-benchmarks.ts';

testSmall('fleets');
