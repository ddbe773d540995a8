export { Client, type CallOptions, type ClientOptions, type ReserveOptions } from "./client.js";
export {
  type Code,
  Decision,
  type DescriptorStatus,
  type FailureMode,
  NoDecision,
  RequestRejected,
  TollgateError,
} from "./decision.js";
export { Hold } from "./hold.js";
export type { LimitOptions } from "./http.js";
export type { Descriptor } from "./protocol.js";
