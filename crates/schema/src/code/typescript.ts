/** Whether keys have hash tags, as a Redis Cluster needs them. */
export type Layout = "plain" | "tagged";

/** A checked id. A plain string cannot be assigned to it, so one id is not mistaken for another. */
export type _Id<Name extends string> = string & { readonly __id: Name };

/** One of the shards of a global key: see `Keys.shards`. */
export type Shard = number & { readonly __shard: true };

/** A whole number as Redis holds it. */
export type IntText = `${bigint}`;

/** A number as Redis holds it. */
export type FloatText = `${number}`;

/** A text that cannot be an id. */
export class InvalidId extends Error {
  override readonly name = "InvalidId";
}

interface _Rule {
  readonly name: string;
  readonly max: number;
  readonly not: readonly string[];
  readonly form: "text" | "int" | "one_of" | "hour" | "endpoint" | "verbatim";
  readonly raw?: string;
  readonly min?: string;
  readonly most?: string;
  readonly step?: string;
  readonly words?: readonly string[];
  readonly space?: string;
  readonly without?: string;
}

function utf8(text: string): number[] | undefined {
  const bytes: number[] = [];
  for (const char of text) {
    const code = char.codePointAt(0) ?? 0;
    if (code < 0x80) {
      bytes.push(code);
    } else if (code < 0x800) {
      bytes.push(0xc0 | (code >> 6), 0x80 | (code & 0x3f));
    } else if (code >= 0xd800 && code <= 0xdfff) {
      return undefined;
    } else if (code < 0x10000) {
      bytes.push(0xe0 | (code >> 12), 0x80 | ((code >> 6) & 0x3f), 0x80 | (code & 0x3f));
    } else {
      bytes.push(0xf0 | (code >> 18), 0x80 | ((code >> 12) & 0x3f));
      bytes.push(0x80 | ((code >> 6) & 0x3f), 0x80 | (code & 0x3f));
    }
  }
  return bytes;
}

const _ENDPOINT =
  /^(?:[a-z]+|[A-Z-]+ \/(?:[^\x00-\x20\x7f%?[\]{}\\"]|%(?:[013-9A-F][0-9A-F]|2[0-689B-F]))*)$/;

function isInt(rule: _Rule, text: string): boolean {
  if (!/^(?:0|[1-9][0-9]{0,19})$/.test(text)) {
    return false;
  }
  const number = BigInt(text);
  const inRange = number >= BigInt(rule.min ?? "0") && number <= BigInt(rule.most ?? "0");
  return inRange && number % BigInt(rule.step ?? "1") === BigInt(0);
}

function isHour(text: string): boolean {
  const parts = /^([0-9]{4})-([0-9]{2})-([0-9]{2})_([0-9]{2})$/.exec(text);
  if (parts === null) {
    return false;
  }
  const [year = 0, month = 0, day = 0, hour = 0] = parts.slice(1).map(Number);
  const leap = (year % 4 === 0 && year % 100 !== 0) || year % 400 === 0;
  const days = [31, leap ? 29 : 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31][month - 1] ?? 0;
  return day >= 1 && day <= days && hour <= 23;
}

function hasForm(rule: _Rule, text: string): boolean {
  switch (rule.form) {
    case "text":
      return true;
    case "int":
      return isInt(rule, text);
    case "one_of":
      return (rule.words ?? []).includes(text);
    case "hour":
      return isHour(text);
    case "endpoint":
      return _ENDPOINT.test(text);
    case "verbatim":
      return ![...(rule.without ?? "")].some((char) => text.includes(char));
  }
}

function check(rule: _Rule, text: string): string {
  const shown = JSON.stringify(text.slice(0, 64));
  const bytes = utf8(text);
  if (bytes === undefined) {
    throw new InvalidId(`${shown} is not a ${rule.name}: it is not valid Unicode`);
  }
  if (bytes.length === 0) {
    throw new InvalidId(`${rule.name} is empty`);
  }
  if (bytes.length > rule.max) {
    throw new InvalidId(`${rule.name} is ${bytes.length} bytes long, more than ${rule.max}`);
  }
  if (rule.not.includes(text)) {
    throw new InvalidId(`${shown} is reserved and cannot be a ${rule.name}`);
  }
  if (!hasForm(rule, text)) {
    throw new InvalidId(`${shown} is not a ${rule.name}`);
  }
  return text;
}

/** The encoding of an id in a key. */
function part(rule: _Rule, id: string, encoding: _Rule = rule): string {
  check(rule, id);
  if (encoding.form === "verbatim") {
    return id;
  }
  const endpoint = encoding.form === "endpoint";
  const raw = endpoint ? ":/%" : (encoding.raw ?? "");
  let spaces = 0;
  return id.replace(/[\x00-\x20"%'*/:?[\\\]{}\x7f]/g, (char) => {
    if (endpoint && char === " " && spaces++ === 0) {
      return encoding.space ?? " ";
    }
    if (raw.includes(char)) {
      return char;
    }
    return "%" + char.charCodeAt(0).toString(16).toUpperCase().padStart(2, "0");
  });
}

type _Env = Readonly<Record<string, string | undefined>>;

interface _Settings {
  readonly prefix: string;
  readonly prefixEnv?: string;
  readonly shards: number;
  readonly shardsEnv?: string;
  readonly channelEnv: Readonly<Record<string, string>>;
}

class _Space {
  /** The prefix of every key. */
  readonly prefix: string;
  readonly layout: Layout;
  private readonly shardCount: number;
  private readonly channelNames: Readonly<Record<string, string | undefined>>;

  constructor(settings: _Settings, layout: Layout, env: _Env) {
    const read = (name: string | undefined) => (name === undefined ? undefined : env[name]);
    this.layout = layout;
    this.prefix = read(settings.prefixEnv) ?? settings.prefix;
    if (!/^[^\x00-\x20\x7f-\x9f{}<>*?[\]\\%"']*(?:\{[^\x00-\x20\x7f-\x9f{}<>*?[\]\\%"']+\}[^\x00-\x20\x7f-\x9f{}<>*?[\]\\%"']*)?$/.test(this.prefix)) {
      throw new RangeError(`${settings.prefixEnv}: ${JSON.stringify(this.prefix)} cannot be a prefix`);
    }
    const shards = read(settings.shardsEnv) ?? String(settings.shards);
    if (!/^0*[1-9][0-9]{0,8}$/.test(shards)) {
      throw new RangeError(`${settings.shardsEnv}: ${JSON.stringify(shards)} is not a positive number`);
    }
    this.shardCount = layout === "tagged" ? Number(shards) : 1;
    const channels = Object.entries(settings.channelEnv);
    this.channelNames = Object.fromEntries(channels.map(([channel, name]) => [channel, read(name)]));
  }

  /** Every shard of a global key; one in the plain layout. */
  shards(): Shard[] {
    return Array.from({ length: this.shardCount }, (_, number) => number as Shard);
  }

  /** The shard of this number. */
  shard(number: number): Shard {
    if (!Number.isInteger(number) || number < 0 || number >= this.shardCount) {
      throw new RangeError(`shard ${number} does not exist: there are ${this.shardCount}`);
    }
    return number as Shard;
  }

  /** The shard that an entity belongs to. */
  shardOf(id: string): Shard {
    const wrap = (number: bigint) => BigInt.asUintN(64, number);
    let hash = BigInt("0xcbf29ce484222325");
    for (const byte of utf8(id) ?? []) {
      hash = wrap((hash ^ BigInt(byte)) * BigInt("0x100000001b3"));
    }
    for (const factor of ["0xff51afd7ed558ccd", "0xc4ceb9fe1a85ec53"]) {
      hash = wrap((hash ^ (hash >> BigInt(33))) * BigInt(factor));
    }
    hash ^= hash >> BigInt(33);
    return Number(hash % BigInt(this.shardCount)) as Shard;
  }

  protected channelName(channel: string, name: string): string {
    return this.channelNames[channel] ?? this.prefix + name;
  }
}
