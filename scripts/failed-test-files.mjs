/**
 * Prints the test files that failed in a report of vitest's JSON reporter, one a line, relative to the working
 * directory. `.ci/run` runs them again alone. A missing or incomplete report ends it with exit code 1.
 */
import { readFileSync } from 'node:fs';
import { relative } from 'node:path';

const [reportPath] = process.argv.slice(2);
if (reportPath === undefined) throw new Error('Give the path of a JSON report.');

const { testResults } = JSON.parse(readFileSync(reportPath, 'utf8'));
for (const { name, status } of testResults) if (status === 'failed') console.log(relative('', name));
