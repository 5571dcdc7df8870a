// The suite's origin on a free port. By itself it listens on all interfaces, and here on that of the machine alone. It ends
// when its input does, and so with the test that holds it, however that ends.
import net from 'node:net'
import os from 'node:os'

const listen = net.Server.prototype.listen
net.Server.prototype.listen = function (port) {
  return listen.call(this, { port: Number(port), host: '127.0.0.1' })
}
Object.assign(process.env, { npm_config_protocol: 'http', npm_config_port: '0', npm_config_pidfile: os.devNull })
process.stdin.resume().on('end', () => process.exit())

await import('http-cache-tests/server/server.mjs')
