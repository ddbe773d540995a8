package tollgate.client.conformance;

import io.grpc.Grpc;
import io.grpc.InsecureServerCredentials;
import io.grpc.Metadata;
import io.grpc.MethodDescriptor;
import io.grpc.Server;
import io.grpc.ServerServiceDefinition;
import io.grpc.stub.ServerCalls;
import jakarta.servlet.DispatcherType;
import jakarta.servlet.http.HttpServlet;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.stream.Stream;
import org.apache.catalina.Context;
import org.apache.catalina.startup.Tomcat;
import org.apache.tomcat.util.descriptor.web.FilterDef;
import org.apache.tomcat.util.descriptor.web.FilterMap;
import tollgate.client.CallSettings;
import tollgate.client.Descriptor;
import tollgate.client.RateLimitFilter;
import tollgate.client.RateLimitInterceptor;
import tollgate.client.TollgateClient;

/** Servers that an integration limits by the user. */
final class Servers {
    private static final Metadata.Key<String> USER = Metadata.Key.of("x-user", Metadata.ASCII_STRING_MARSHALLER);
    private static final MethodDescriptor<byte[], byte[]> CHECK = MethodDescriptor.<byte[], byte[]>newBuilder()
        .setType(MethodDescriptor.MethodType.UNARY)
        .setFullMethodName("grpc.health.v1.Health/Check")
        .setRequestMarshaller(new Bytes())
        .setResponseMarshaller(new Bytes())
        .build();

    private final List<AutoCloseable> running = new ArrayList<>();
    // One for all, since Tomcat creates that of its first server again.
    private final Path folder;

    Servers() throws IOException {
        folder = Files.createTempDirectory("servlet");
    }

    /** Starts a server, and returns its address. */
    String serve(String integration, TollgateClient client, CallSettings settings) throws Exception {
        int port = integration.equals("grpc") ? serveGrpc(client, settings) : serveServlet(client, settings);
        return "127.0.0.1:" + port;
    }

    void stop() throws Exception {
        for (AutoCloseable server : running) {
            server.close();
        }
        running.clear();
    }

    private int serveGrpc(TollgateClient client, CallSettings settings) throws IOException {
        ServerServiceDefinition health = ServerServiceDefinition.builder("grpc.health.v1.Health")
            .addMethod(CHECK, ServerCalls.asyncUnaryCall((request, observer) -> {
                observer.onNext(new byte[0]);
                observer.onCompleted();
            }))
            .build();
        Server server = Grpc.newServerBuilderForPort(0, InsecureServerCredentials.create())
            .addService(health)
            .intercept(new RateLimitInterceptor(
                client, "test", (method, metadata) -> byUser(metadata.get(USER)), settings))
            .build()
            .start();
        running.add(server::shutdownNow);
        return server.getPort();
    }

    private int serveServlet(TollgateClient client, CallSettings settings) throws Exception {
        Tomcat tomcat = new Tomcat();
        tomcat.setBaseDir(folder.toString());
        tomcat.setHostname("127.0.0.1");
        tomcat.setPort(0);
        Context context = tomcat.addContext("", folder.toString());
        Tomcat.addServlet(context, "application", new HttpServlet() {
            @Override
            protected void doGet(HttpServletRequest request, HttpServletResponse response) throws IOException {
                response.getWriter().print("application");
            }
        });
        context.addServletMappingDecoded("/", "application");
        FilterDef filter = new FilterDef();
        filter.setFilterName("limit");
        filter.setFilter(
            new RateLimitFilter(client, "test", request -> byUser(request.getHeader("x-user")), settings));
        context.addFilterDef(filter);
        FilterMap mapping = new FilterMap();
        mapping.setFilterName("limit");
        mapping.addURLPattern("/*");
        mapping.setDispatcher(DispatcherType.REQUEST.name());
        context.addFilterMap(mapping);
        tomcat.getConnector();
        tomcat.start();
        running.add(() -> {
            tomcat.stop();
            tomcat.destroy();
        });
        return tomcat.getConnector().getLocalPort();
    }

    /** Deletes the files of servers. */
    void delete() throws IOException {
        try (Stream<Path> paths = Files.walk(folder)) {
            for (Path path : paths.sorted(Comparator.reverseOrder()).toList()) {
                Files.delete(path);
            }
        }
    }

    private static List<Descriptor> byUser(String user) {
        return user == null ? List.of() : List.of(Descriptor.of("user", user));
    }

    /** Messages as they are. */
    private static final class Bytes implements MethodDescriptor.Marshaller<byte[]> {
        @Override
        public InputStream stream(byte[] message) {
            return new ByteArrayInputStream(message);
        }

        @Override
        public byte[] parse(InputStream stream) {
            try {
                return stream.readAllBytes();
            } catch (IOException error) {
                throw new UncheckedIOException(error);
            }
        }
    }
}
