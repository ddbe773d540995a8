package tollgate.client;

import io.grpc.ServerCall;
import java.util.ArrayDeque;
import java.util.Queue;
import java.util.function.Consumer;

/** A listener that keeps the events of a call until its decision is there. */
final class DelayedListener<T> extends ServerCall.Listener<T> {
    private final Queue<Consumer<ServerCall.Listener<T>>> waiting = new ArrayDeque<>();
    private ServerCall.Listener<T> started;

    /** Delivers the events so far, and all that follow, to the listener of the call's handler. */
    synchronized void start(ServerCall.Listener<T> listener) {
        try {
            waiting.forEach(event -> event.accept(listener));
        } finally {
            waiting.clear();
            started = listener;
        }
    }

    @Override
    public void onMessage(T message) {
        deliver(listener -> listener.onMessage(message));
    }

    @Override
    public void onHalfClose() {
        deliver(ServerCall.Listener::onHalfClose);
    }

    @Override
    public void onCancel() {
        deliver(ServerCall.Listener::onCancel);
    }

    @Override
    public void onComplete() {
        deliver(ServerCall.Listener::onComplete);
    }

    @Override
    public void onReady() {
        deliver(ServerCall.Listener::onReady);
    }

    private void deliver(Consumer<ServerCall.Listener<T>> event) {
        ServerCall.Listener<T> listener;
        synchronized (this) {
            listener = started;
            if (listener == null) {
                waiting.add(event);
                return;
            }
        }
        event.accept(listener);
    }
}
