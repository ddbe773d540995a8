package tollgate.client;

import envoy.extensions.common.ratelimit.v3.Ratelimit.RateLimitDescriptor;
import java.util.List;

/** The entries of a descriptor, in the order in which the policy nests its rules. */
public final class Descriptor {
    private final RateLimitDescriptor message;

    private Descriptor(RateLimitDescriptor message) {
        this.message = message;
    }

    /** Returns a descriptor of one entry. */
    public static Descriptor of(String key, String value) {
        return new Descriptor(RateLimitDescriptor.getDefaultInstance()).and(key, value);
    }

    /** Returns a descriptor with one more entry. */
    public Descriptor and(String key, String value) {
        RateLimitDescriptor.Entry entry = RateLimitDescriptor.Entry.newBuilder().setKey(key).setValue(value).build();
        return new Descriptor(message.toBuilder().addEntries(entry).build());
    }

    static List<RateLimitDescriptor> messages(List<Descriptor> descriptors) {
        return descriptors.stream().map(descriptor -> descriptor.message).toList();
    }
}
