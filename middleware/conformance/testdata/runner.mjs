// Runs all cases at once against the base URL that is its argument, and prints the result of each.
import fetch from 'node-fetch'
import { getResults, runTests } from 'http-cache-tests/client/runner.mjs'
import tests from 'http-cache-tests/tests/index.mjs'

await runTests(tests, fetch, false, process.argv[2], 400)
console.log(JSON.stringify(getResults()))
