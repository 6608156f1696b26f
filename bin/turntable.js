#!/usr/bin/env -S node --initial-old-space-size=256
// Bodies and answers are memory outside of V8's heap, which counts it: beside a small heap it collected all of it for
// each 8 MB of them. Now it waits for 256 MB; answers of 1.2 MB took the host two to three times as much of a core.
import '../dist/cli/main.js';
