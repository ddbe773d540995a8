// Copies the protocol of the repository into the package, which loads it when it starts. Published packages have the copy.
import { cpSync, existsSync } from "node:fs";

const repository = new URL("../../proto/", import.meta.url);
const copy = new URL("./proto/", import.meta.url);
if (existsSync(repository)) {
  for (const folder of ["envoy/config/core", "envoy/extensions", "envoy/service/ratelimit", "envoy/type", "tollgate"]) {
    cpSync(new URL(folder, repository), new URL(folder, copy), { recursive: true });
  }
}
