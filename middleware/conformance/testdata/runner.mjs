// Runs all cases against the base URL that is its argument, and prints the result of each.
import fetch from 'node-fetch'
import { getResults, runTests } from 'http-cache-tests/client/runner.mjs'
import tests from 'http-cache-tests/tests/index.mjs'

// All cases begin at once, and some allow only seconds between their requests. So that a busy machine does not stretch
// these, few requests are out at a time, and the latest goes first: a case that has begun goes on before others begin.
const most = 8
const waiting = []
let out = 0

async function inTurn (...request) {
  if (out === most) await new Promise(resolve => waiting.push(resolve))
  else out++
  try {
    return await fetch(...request)
  } finally {
    if (waiting.length) waiting.pop()()
    else out--
  }
}

await runTests(tests, inTurn, false, process.argv[2], 400)
console.log(JSON.stringify(getResults()))
