package cdc_pipeline;

import io.delta.storage.CloseableIterator;
import io.delta.storage.LineCloseableIterator;
import io.delta.storage.S3SingleDriverLogStore;
import java.io.ByteArrayInputStream;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.InterruptedIOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.FileAlreadyExistsException;
import java.util.Arrays;
import java.util.Comparator;
import java.util.Iterator;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.s3a.S3AFileStatus;
import org.apache.hadoop.fs.s3a.S3AFileSystem;
import org.apache.hadoop.fs.s3a.S3AUtils;
import software.amazon.awssdk.core.exception.SdkException;
import software.amazon.awssdk.core.sync.RequestBody;
import software.amazon.awssdk.services.s3.S3Client;
import software.amazon.awssdk.services.s3.model.GetObjectRequest;
import software.amazon.awssdk.services.s3.model.ListObjectsV2Request;
import software.amazon.awssdk.services.s3.model.NoSuchKeyException;
import software.amazon.awssdk.services.s3.model.PutObjectRequest;
import software.amazon.awssdk.services.s3.model.S3Exception;

/**
 * Delta's log on S3, safe with several writers: a commit is one PUT that fails if the object exists (If-None-Match). Of two
 * writers of one version, one gets FileAlreadyExistsException, as Delta expects. Hadoop 3.4 has no setting for this.
 */
public class ConditionalS3LogStore extends S3SingleDriverLogStore {
  /** The first name of a log, as Delta asks for it. */
  private static final String FIRST = "00000000000000000000.";
  private static final int EXISTS = 412;
  /** Another conditional PUT of the object is under way, and may fail. */
  private static final int CONFLICT = 409;
  private static final int MOST_ATTEMPTS = 20;
  /** In one answer of S3. */
  private static final int MOST_KEYS = 1000;
  private static final long PAUSE_MS = 50;

  public ConditionalS3LogStore(Configuration configuration) {
    super(configuration);
  }

  @Override
  public void write(Path path, Iterator<String> actions, Boolean overwrite, Configuration configuration)
      throws IOException {
    if (overwrite) {
      super.write(path, actions, true, configuration);
      return;
    }
    StringBuilder lines = new StringBuilder();
    actions.forEachRemaining(action -> lines.append(action).append('\n'));
    create(path, (S3AFileSystem) path.getFileSystem(configuration), lines.toString().getBytes(StandardCharsets.UTF_8));
  }

  /** Lists at once. The superclass asks first whether the folder exists, in two requests. */
  @Override
  public Iterator<FileStatus> listFrom(Path path, Configuration configuration) throws IOException {
    FileSystem files = path.getFileSystem(configuration);
    FileStatus[] found = list(path, (S3AFileSystem) files);
    if (found.length == 0 && path.getName().startsWith(FIRST)) {
      throw new FileNotFoundException(path.getParent() + " has no log");
    }
    if (found.length == 0) {
      return super.listFrom(path, configuration); // FileNotFoundException if there is no folder
    }
    if (files instanceof FewerRequestsS3) {
      ((FewerRequestsS3) files).remember(found);
    }
    return Arrays.stream(found)
        .filter(file -> file.getPath().getName().compareTo(path.getName()) >= 0)
        .sorted(Comparator.comparing(file -> file.getPath().getName()))
        .iterator();
  }

  /**
   * The log from about the name of `path` on: the listing begins there. Delta's own way calls a method of S3A that Hadoop
   * 3.5 lacks.
   */
  private static FileStatus[] list(Path path, S3AFileSystem files) throws IOException {
    Path folder = path.getParent();
    String prefix = files.pathToKey(folder) + "/";
    String key = prefix + path.getName();
    ListObjectsV2Request request =
        files.getRequestFactory()
            .newListObjectsV2RequestBuilder(prefix, null, MOST_KEYS)
            .startAfter(key.substring(0, key.length() - 1))
            .build();
    long block = files.getDefaultBlockSize(path);
    try {
      return files.getS3AInternals().getAmazonS3Client("Delta log").listObjectsV2Paginator(request).contents().stream()
          .filter(object -> !object.key().endsWith("/"))
          .map(
              object ->
                  new S3AFileStatus(
                      object.size(),
                      object.lastModified().toEpochMilli(),
                      new Path(folder, object.key().substring(prefix.length())),
                      block,
                      files.getUsername(),
                      object.eTag(),
                      null))
          .toArray(FileStatus[]::new);
    } catch (SdkException error) {
      throw S3AUtils.translateException("list", path, error);
    }
  }

  /** Reads in one request. The superclass asks first for the length. */
  @Override
  public CloseableIterator<String> read(Path path, Configuration configuration) throws IOException {
    byte[] content = read(path, (S3AFileSystem) path.getFileSystem(configuration));
    return new LineCloseableIterator(
        new InputStreamReader(new ByteArrayInputStream(content), StandardCharsets.UTF_8));
  }

  /** Writes a new object, or throws FileAlreadyExistsException. */
  static void create(Path path, S3AFileSystem files, byte[] content) throws IOException {
    // with the encryption, storage class and access rights that fs.s3a.* give to objects
    PutObjectRequest.Builder request =
        files.getRequestFactory().newPutObjectRequestBuilder(files.pathToKey(path), null, content.length, false);
    PutObjectRequest conditional = request.ifNoneMatch("*").build();
    S3Client client = files.getS3AInternals().getAmazonS3Client("Delta commit");
    for (int attempt = 1; ; attempt++) {
      try {
        client.putObject(conditional, RequestBody.fromBytes(content));
        return;
      } catch (S3Exception error) {
        if (error.statusCode() == CONFLICT && attempt < MOST_ATTEMPTS) {
          pause(attempt * PAUSE_MS);
        } else if (error.statusCode() != EXISTS) {
          throw new IOException(path + " cannot be written: " + error.getMessage(), error);
        } else if (Arrays.equals(read(path, files), content)) {
          return; // an earlier attempt, which the client has repeated, was successful
        } else {
          throw new FileAlreadyExistsException(path.toString());
        }
      } catch (SdkException error) {
        throw new IOException(path + " cannot be written: " + error.getMessage(), error);
      }
    }
  }

  private static byte[] read(Path path, S3AFileSystem files) throws IOException {
    GetObjectRequest request = files.getRequestFactory().newGetObjectRequestBuilder(files.pathToKey(path)).build();
    try {
      return files.getS3AInternals().getAmazonS3Client("Delta log").getObjectAsBytes(request).asByteArray();
    } catch (NoSuchKeyException error) {
      throw (IOException) new FileNotFoundException(path.toString()).initCause(error);
    } catch (SdkException error) {
      throw new IOException(path + " cannot be read: " + error.getMessage(), error);
    }
  }

  private static void pause(long milliseconds) throws InterruptedIOException {
    try {
      Thread.sleep(milliseconds);
    } catch (InterruptedException error) {
      Thread.currentThread().interrupt();
      throw new InterruptedIOException("interrupted between two attempts to commit");
    }
  }
}
