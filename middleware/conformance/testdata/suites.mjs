// Prints which cases there are, without those for browsers, and the results that the suite's authors published.
import { createRequire } from 'node:module'
import published from 'http-cache-tests/results/index.mjs'
import tests from 'http-cache-tests/tests/index.mjs'

const require = createRequire(import.meta.url)

console.log(JSON.stringify({
  suites: tests.map(suite => ({
    id: suite.id,
    name: suite.name,
    cases: suite.tests.filter(test => !test.browser_only).map(test => ({
      id: test.id,
      kind: test.kind ?? 'required',
      dependsOn: test.depends_on ?? []
    }))
  })),
  published: published.filter(cache => cache.type !== 'browser').map(cache => ({
    name: cache.name,
    version: cache.version,
    results: require(`http-cache-tests/results/${cache.file}`)
  }))
}))
