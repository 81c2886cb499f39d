// Asks a server of Upstash's protocol by Upstash's own client: upstash_client.mjs DIRECTORY-OF-THE-CLIENT URL TOKEN KEY SCRIPT.
// A line of JSON says what it was told.
import { createRequire } from "node:module";

const [directory, url, token, key, script] = process.argv.slice(2);
const { Redis } = createRequire(`${directory}/`)("@upstash/redis");
const client = (options) => new Redis({ url, token, retry: false, enableTelemetry: false, enableAutoPipelining: false, ...options });
const redis = client();
const refused = (promise) => promise.then(() => null, (error) => error.message);

const limit = ["tb", 60, 60000, 5, 1];
const told = {};
told.unknown = await refused(redis.evalsha("0".repeat(40), [key], limit));
told.stranger = await refused(client({ token: "wrong" }).get(key));
told.one = await redis.eval(script, [key], limit);
told.several = await redis.pipeline().eval(script, [key], limit).eval(script, [key], limit).exec();
const bytes = 'a/b.c:{d}%" é\n"';
told.ok = await redis.set(bytes, bytes);
told.same = (await redis.get(bytes)) === bytes;
told.nobody = await redis.get("nobody");
console.log(JSON.stringify(told));
