
// Layout says whether keys have hash tags, as a Redis Cluster needs them.
type Layout int

const (
	Plain Layout = iota
	Tagged
)

// Shard is one of the shards of a global key: see [Keys.Shards].
type Shard struct{ number uint32 }

// Number returns the number of the shard.
func (s Shard) Number() uint32 { return s.number }

// InvalidID says why a text cannot be an id.
type InvalidID struct{ reason string }

func (e *InvalidID) Error() string { return e.reason }

type rule struct {
	name        string
	max         int
	not         []string
	form        string
	raw         string
	least, most uint64
	step        uint64
	words       []string
	space       string
	without     string
}

var (
	intForm      = regexp.MustCompile(`^(?:0|[1-9][0-9]*)$`)
	hourForm     = regexp.MustCompile(`^[0-9]{4}-[0-9]{2}-[0-9]{2}_[0-9]{2}$`)
	endpointForm = regexp.MustCompile(`^(?:[a-z]+|[A-Z-]+ /(?:[^\x00-\x20\x7f%?\[\]{}\\"]|%(?:[013-9A-F][0-9A-F]|2[0-689B-F]))*)$`)
	prefixForm   = regexp.MustCompile(`^[^\x00-\x20\x7f-\x{9f}{}<>*?\[\]\\%"']*(?:\{[^\x00-\x20\x7f-\x{9f}{}<>*?\[\]\\%"']+\}[^\x00-\x20\x7f-\x{9f}{}<>*?\[\]\\%"']*)?$`)
	shardsForm   = regexp.MustCompile(`^0*[1-9][0-9]{0,8}$`)
)

func (r rule) hasForm(text string) bool {
	switch r.form {
	case "int":
		number, err := strconv.ParseUint(text, 10, 64)
		return err == nil && intForm.MatchString(text) && r.least <= number && number <= r.most && number%r.step == 0
	case "one_of":
		return contains(r.words, text)
	case "hour":
		return isHour(text)
	case "endpoint":
		return endpointForm.MatchString(text)
	case "verbatim":
		return !strings.ContainsAny(text, r.without)
	}
	return true
}

func isHour(text string) bool {
	if !hourForm.MatchString(text) {
		return false
	}
	number := func(from, to int) int {
		value, _ := strconv.Atoi(text[from:to])
		return value
	}
	year, month, day, hour := number(0, 4), number(5, 7), number(8, 10), number(11, 13)
	days := []int{0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31}
	if (year%4 == 0 && year%100 != 0) || year%400 == 0 {
		days[2] = 29
	}
	return month >= 1 && month <= 12 && day >= 1 && day <= days[month] && hour <= 23
}

func contains(words []string, text string) bool {
	for _, word := range words {
		if word == text {
			return true
		}
	}
	return false
}

func (r rule) check(text string) error {
	invalid := func(format string, values ...any) error {
		return &InvalidID{fmt.Sprintf(format, values...)}
	}
	switch {
	case text == "":
		return invalid("%s is empty", r.name)
	case len(text) > r.max:
		return invalid("%s is %d bytes long, more than %d", r.name, len(text), r.max)
	case contains(r.not, text):
		return invalid("%q is reserved and cannot be a %s", text, r.name)
	case !utf8.ValidString(text) || !r.hasForm(text):
		return invalid("%.64q is not a %s", text, r.name)
	}
	return nil
}

// part returns the encoding of a checked id in a key.
func (r rule) part(text string) string {
	if text == "" {
		panic("the zero value of an id is not an id; make one with its New function")
	}
	if r.form == "verbatim" {
		return text
	}
	raw := r.raw
	if r.form == "endpoint" {
		raw = ":/%"
	}
	var key strings.Builder
	spaces := 0
	for i := 0; i < len(text); i++ {
		char := text[i]
		special := char <= ' ' || char == 0x7f || strings.IndexByte("\"%'*/:?[\\]{}", char) >= 0
		switch {
		case r.form == "endpoint" && char == ' ' && spaces == 0:
			spaces++
			key.WriteString(r.space)
		case special && strings.IndexByte(raw, char) < 0:
			fmt.Fprintf(&key, "%%%02X", char)
		default:
			key.WriteByte(char)
		}
	}
	return key.String()
}

// Keys builds the keys of the schema.
type Keys struct {
	prefix   string
	layout   Layout
	shards   uint32
	channels map[string]string
}

// New returns keys with the prefix of the schema.
func New(layout Layout) Keys {
	keys, err := FromEnv(layout, func(string) (string, bool) { return "", false })
	if err != nil {
		panic(err)
	}
	return keys
}

// FromEnv returns keys with the prefix, the shards and the names of channels that lookup finds, for example
// os.LookupEnv.
func FromEnv(layout Layout, lookup func(string) (string, bool)) (Keys, error) {
	keys := Keys{prefix: defaultPrefix, layout: layout, shards: 1, channels: map[string]string{}}
	if prefix, found := lookup(prefixEnv); found && prefixEnv != "" {
		keys.prefix = prefix
	}
	if !utf8.ValidString(keys.prefix) || !prefixForm.MatchString(keys.prefix) {
		return Keys{}, fmt.Errorf("%s: %q cannot be a prefix", prefixEnv, keys.prefix)
	}
	shards := strconv.Itoa(defaultShards)
	if text, found := lookup(shardsEnv); found && shardsEnv != "" {
		shards = text
	}
	if !shardsForm.MatchString(shards) {
		return Keys{}, fmt.Errorf("%s: %q is not a positive number", shardsEnv, shards)
	}
	if layout == Tagged {
		count, err := strconv.ParseUint(shards, 10, 32)
		if err != nil {
			return Keys{}, fmt.Errorf("%s: %w", shardsEnv, err)
		}
		keys.shards = uint32(count)
	}
	for channel, name := range channelEnv {
		if renamed, found := lookup(name); found {
			keys.channels[channel] = renamed
		}
	}
	return keys, nil
}

// Shards returns every shard of a global key; one in the plain layout.
func (k Keys) Shards() []Shard {
	shards := make([]Shard, k.shards)
	for number := range shards {
		shards[number] = Shard{uint32(number)}
	}
	return shards
}

// Shard returns the shard of this number.
func (k Keys) Shard(number uint32) (Shard, error) {
	if number >= k.shards {
		return Shard{}, fmt.Errorf("shard %d does not exist: there are %d", number, k.shards)
	}
	return Shard{number}, nil
}

// ShardOf returns the shard that an entity belongs to.
func (k Keys) ShardOf(id string) Shard {
	hash := uint64(0xcbf29ce484222325)
	for i := 0; i < len(id); i++ {
		hash = (hash ^ uint64(id[i])) * 0x100000001b3
	}
	for _, factor := range []uint64{0xff51afd7ed558ccd, 0xc4ceb9fe1a85ec53} {
		hash = (hash ^ (hash >> 33)) * factor
	}
	hash ^= hash >> 33
	return Shard{uint32(hash % uint64(k.shards))}
}

func (k Keys) channel(channel, name string) string {
	if renamed, found := k.channels[channel]; found {
		return renamed
	}
	return k.prefix + name
}
