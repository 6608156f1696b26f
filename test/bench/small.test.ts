/** Every benchmark runs small, so that none breaks between measurements: here those that no other file beside has. */
import { testSmall } from '../support/small-benchmarks.ts';

testSmall('others');
